//! A store of its own for each test.

use std::path::{Path, PathBuf};

use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};

/// Which database a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    /// A file in a temporary directory.
    Sqlite,
    /// A schema of its own on a real server.
    Postgres,
}

/// A store that is removed at the end, and a folder for everything else.
pub(crate) struct Home {
    folder: tempfile::TempDir,
    schema: Option<String>,
}

impl Home {
    pub(crate) async fn new(database: Database) -> Self {
        sqlx::any::install_default_drivers();
        let folder = tempfile::tempdir().unwrap();
        let schema = match database {
            Database::Sqlite => None,
            Database::Postgres => {
                let name = format!("palisade_owner_{:032x}", rand::random::<u128>());
                // Its own clock hides that of the server, and can be set.
                administer(&format!(
                    "CREATE SCHEMA {name}; CREATE TABLE {name}.clock_jump (by INTERVAL NOT NULL); \
                     INSERT INTO {name}.clock_jump VALUES ('0'); \
                     CREATE FUNCTION {name}.clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql VOLATILE AS \
                     'SELECT pg_catalog.clock_timestamp() + by FROM {name}.clock_jump'"
                ))
                .await;
                Some(name)
            }
        };
        Self { folder, schema }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the embedded store is.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    /// The database of Core, for a Core with this name in the server's list of sessions.
    pub(crate) fn database_url(&self, name: &str) -> Option<String> {
        // Whatever stands in the schema hides what the server has under the same name.
        let schema = self.schema.as_ref()?;
        Some(format!("{}?options[search_path]={schema},pg_catalog&application_name={schema}_{name}", server_url()))
    }

    /// A connection to the same database, behind Core's back.
    pub(crate) async fn connect(&self) -> AnyConnection {
        let file = format!("sqlite://{}", self.data().join("palisade.db").display());
        let url = self.database_url("test").unwrap_or(file);
        let mut connection = AnyConnection::connect(&url).await.unwrap();
        if self.schema.is_none() {
            connection.execute("PRAGMA busy_timeout = 10000").await.unwrap();
        }
        connection
    }

    /// Changes the store behind Core's back.
    pub(crate) async fn execute(&self, statement: &str) {
        let mut connection = self.connect().await;
        connection.execute(AssertSqlSafe(statement.to_owned())).await.unwrap();
        // One that is only dropped closes later, and then removes what has the name of its log by then.
        connection.close().await.unwrap();
    }

    /// Sets the clock of the database; negative is back.
    pub(crate) async fn jump(&self, ms: i64) {
        assert!(self.schema.is_some(), "only a server has a clock of its own");
        self.execute(&format!("UPDATE clock_jump SET by = INTERVAL '{ms} milliseconds'")).await;
    }

    /// Ends all connections of the Core with this name, as a server does that has lost it.
    pub(crate) async fn cut_off(&self, name: &str) {
        let schema = self.schema.as_ref().expect("only a server has connections");
        administer(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{schema}_{name}'"
        ))
        .await;
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let Some(name) = self.schema.take() else { return };
        // The test's runtime stands still here, so its connections must be ended from outside.
        let statement = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '{name}%'; \
             DROP SCHEMA {name} CASCADE"
        );
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(administer(&statement));
        });
        dropping.join().expect("the test's schema can be dropped");
    }
}

fn server_url() -> String {
    std::env::var("PALISADE_TEST_DATABASE_URL")
        .unwrap_or_else(|_| "postgres://palisade:palisade@localhost:5432/postgres".to_owned())
}

async fn administer(statement: &str) {
    let mut connection = AnyConnection::connect(&server_url())
        .await
        .unwrap_or_else(|error| panic!("PostgreSQL must answer at PALISADE_TEST_DATABASE_URL: {error}"));
    connection.execute(AssertSqlSafe(statement.to_owned())).await.unwrap();
}
