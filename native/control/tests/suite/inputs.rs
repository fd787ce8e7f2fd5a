//! Standard inputs of Turns: apart from the rows that change, and gone with the end (deployment §11.2).

use std::borrow::Cow;

use palisade_control::store::allocations::Concluded;
use palisade_control::store::commands::{Outputs, Started};
use palisade_control::store::work::Work;
use palisade_control::store::{Store, migrate};
use palisade_core::lifecycle::{Change, TurnError};
use palisade_core::units::Id;
use rstest::rstest;
use sqlx::any::AnyRow;
use sqlx::migrate::Migrator;
use sqlx::{AnyConnection, Connection as _, Executor as _, Row as _};

use crate::public::{Public, SESSIONS};
use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::Home;

const SIX_BYTES: &str = r#"{"type":"message","command":{"args":["cat"],"stdin":"AP8AAP8A"}}"#;

/// The Turns of one session whose sandbox runs.
struct Queue {
    public: Public,
    database: Database,
    session: String,
    work: Work,
}

impl Queue {
    async fn new(database: Database) -> Self {
        let (public, node) = Public::with_node(database).await;
        let session = public.session().await;
        public.allocate(&session, &node, "running").await;
        let environment = Id::parse(&public.fixture.text("SELECT id FROM environments").await).unwrap();
        let work = public.fixture.core.store().work(environment).await.unwrap().unwrap();
        Self { public, database, session: format!("{SESSIONS}/{session}"), work }
    }

    fn store(&self) -> &Store {
        self.public.fixture.core.store()
    }

    async fn post(&self, body: &str) -> Id {
        let (_, turn) = self.public.post(&format!("{}/events", self.session), body).await;
        Id::parse(turn["id"].as_str().unwrap()).unwrap()
    }

    async fn start(&self, turn: Id) -> Started {
        self.store().start_turn(self.public.fixture.lease.epoch, &self.work, turn).await.unwrap().unwrap()
    }

    async fn conclude(&self, change: Change) {
        let outputs = Some(Outputs { stdout: "out", stderr: "", exit_code: 0 });
        let concluded = Concluded { changes: &[change], provider_id: "", outputs };
        self.store().conclude(self.public.fixture.lease.epoch, &self.work, concluded).await.unwrap();
    }

    async fn cancel(&self) {
        self.public.post(&format!("{}/events", self.session), r#"{"type":"cancel"}"#).await;
    }

    async fn inputs(&self) -> i64 {
        self.public.fixture.count("SELECT COUNT(*) FROM turn_inputs").await
    }

    /// From now on a change of any stored input fails.
    async fn seal(&self) {
        let statements: &[&str] = match self.database {
            Sqlite => &["CREATE TRIGGER sealed BEFORE UPDATE ON turn_inputs BEGIN SELECT RAISE(ABORT, 'touched'); END"],
            Postgres => &[
                "CREATE FUNCTION sealed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'touched'; END $$",
                "CREATE TRIGGER sealed BEFORE UPDATE ON turn_inputs FOR EACH ROW EXECUTE FUNCTION sealed()",
            ],
        };
        for statement in statements {
            self.public.fixture.execute(statement).await;
        }
    }

    /// The input is there, and no row that changes holds it.
    async fn stands_apart(&self, when: &str) {
        assert_eq!(self.public.fixture.count("SELECT SUM(length(stdin)) FROM turn_inputs").await, 6, "{when}");
        let mut tx = self.store().read().await.unwrap();
        let row = sqlx::query("SELECT * FROM turns").fetch_one(&mut *tx).await.unwrap();
        assert_eq!(blobs(&row), Vec::<Vec<u8>>::new(), "{when}");
    }
}

fn blobs(row: &AnyRow) -> Vec<Vec<u8>> {
    (0..row.len()).filter_map(|column| row.try_get::<Option<Vec<u8>>, _>(column).ok().flatten()).collect()
}

/// A Turn changes as often as it must without its input being written again; what is handed over is the input.
#[rstest]
#[tokio::test]
async fn a_change_of_a_turn_leaves_its_input_alone(#[values(Sqlite, Postgres)] database: Database) {
    let queue = Queue::new(database).await;
    let turn = queue.post(SIX_BYTES).await;
    queue.seal().await;
    queue.stands_apart("in line").await;
    assert_eq!(queue.store().queued_stdin_bytes(turn).await.unwrap(), Some(6));
    for when in ["once", "again"] {
        assert_eq!(queue.start(turn).await.command.stdin.as_deref(), Some(b"\x00\xff\0\0\xff\0".as_slice()), "{when}");
        queue.stands_apart("started").await;
        queue.conclude(Change::TurnRequeued(turn)).await;
        queue.stands_apart("back in line").await;
    }
    queue.start(turn).await;
    queue.cancel().await;
    queue.stands_apart("to be cancelled").await;
}

/// A Turn that was cancelled while its command could not be sent is cancelled, and does not stand in the line for ever.
#[rstest]
#[tokio::test]
async fn a_cancelled_turn_does_not_go_back_into_the_line(#[values(Sqlite, Postgres)] database: Database) {
    let queue = Queue::new(database).await;
    let turn = queue.post(SIX_BYTES).await;
    queue.start(turn).await;
    queue.cancel().await;
    queue.conclude(Change::TurnRequeued(turn)).await;
    let ended = "SELECT COUNT(*) FROM turns WHERE status = 'cancelled' AND completed_at IS NOT NULL";
    assert_eq!((queue.public.fixture.count(ended).await, queue.inputs().await), (1, 0));
}

/// Whatever the end, the input goes with it; the inputs of the other Turns stay.
#[rstest]
#[tokio::test]
async fn an_input_ends_with_its_turn(#[values(Sqlite, Postgres)] database: Database) {
    let queue = Queue::new(database).await;
    let epoch = queue.public.fixture.lease.epoch;
    let [completed, failed, abandoned, cancelled] = [
        queue.post(SIX_BYTES).await,
        queue.post(SIX_BYTES).await,
        queue.post(SIX_BYTES).await,
        queue.post(SIX_BYTES).await,
    ];
    queue.start(completed).await;
    assert_eq!(queue.inputs().await, 4);
    queue.conclude(Change::TurnCompleted(completed)).await;
    assert_eq!(queue.inputs().await, 3);
    queue.start(failed).await;
    queue.conclude(Change::TurnFailed(failed, TurnError::Unconfirmed)).await;
    assert_eq!(queue.inputs().await, 2);
    queue.start(abandoned).await;
    queue.cancel().await;
    assert_eq!(queue.inputs().await, 1, "the one in line");
    assert_eq!(queue.store().queued_stdin_bytes(cancelled).await.unwrap(), None);
    queue.store().abandon_turn(epoch, &queue.work, abandoned, TurnError::Unconfirmed.code()).await.unwrap();
    assert_eq!(queue.inputs().await, 0);
    let (_, page) = queue.public.get(&format!("{}/turns", queue.session)).await;
    let states: Vec<_> = page["data"].as_array().unwrap().iter().map(|turn| turn["status"].clone()).collect();
    assert_eq!(states, ["completed", "failed", "cancelled", "cancelled"]);
}

/// An empty input and none at all are two things.
#[rstest]
#[tokio::test]
async fn an_empty_input_is_an_input(#[values(Sqlite, Postgres)] database: Database) {
    let queue = Queue::new(database).await;
    let empty = queue.post(r#"{"type":"message","command":{"args":["cat"],"stdin":""}}"#).await;
    let none = queue.post(r#"{"type":"message","command":{"args":["cat"]}}"#).await;
    for (turn, stdin) in [(empty, Some([].as_slice())), (none, None)] {
        assert_eq!(queue.store().queued_stdin_bytes(turn).await.unwrap(), Some(0));
        assert_eq!(queue.start(turn).await.command.stdin.as_deref(), stdin);
    }
}

/// Turns of an older database keep their inputs as long as they have not ended.
#[rstest]
#[tokio::test]
async fn inputs_of_an_older_database_move(#[values(Sqlite, Postgres)] database: Database) {
    let home = Home::new(database).await;
    let mut connection = AnyConnection::connect(&home.url()).await.unwrap();
    let mut older = sqlx::migrate!("./migrations");
    older.migrations = Cow::Owned(older.iter().filter(|step| step.version < 3).cloned().collect());
    Migrator::run(&older, &mut connection).await.unwrap();
    for statement in [
        "INSERT INTO projects VALUES ('project', 'tenant', 'name', 1, NULL)",
        "INSERT INTO sessions VALUES ('session', 'project', 'tenant', 'openai_hosted', NULL, 1, NULL)",
        "INSERT INTO environments (id, session_id, status, created_at, changed_at) \
         VALUES ('environment', 'session', 'connected', 1, 1)",
    ] {
        connection.execute(statement).await.unwrap();
    }
    let turns = [
        ("completed", Some(2_i64), Some("out"), Some("ended")),
        ("in_progress", None, None, Some("started")),
        ("queued", None, None, Some("waits")),
        ("queued", None, None, None),
    ];
    for ((status, ended, stdout, stdin), position) in turns.into_iter().zip(1_i64..) {
        sqlx::query(
            "INSERT INTO turns (id, session_id, environment_id, position, status, args, stdin, timeout_ms, created_at, \
             completed_at, exit_code, stdout) VALUES ($1, 'session', 'environment', $2, $3, '[]', $4, 1, 1, $5, $5, $6)",
        )
        .bind(format!("turn {position}"))
        .bind(position)
        .bind(status)
        .bind(stdin.map(|stdin: &str| stdin.as_bytes().to_vec()))
        .bind(ended)
        .bind(stdout.map(|stdout: &str| stdout.as_bytes().to_vec()))
        .execute(&mut connection)
        .await
        .unwrap();
    }
    connection.close().await.unwrap();

    migrate(&home.location).await.unwrap();
    let store = Store::open(&home.location).await.unwrap();
    let mut tx = store.read().await.unwrap();
    let inputs = "SELECT turn_id, stdin FROM turn_inputs ORDER BY turn_id";
    let inputs: Vec<(String, Vec<u8>)> = sqlx::query_as(inputs).fetch_all(&mut *tx).await.unwrap();
    assert_eq!(inputs, [("turn 2".to_owned(), b"started".to_vec()), ("turn 3".to_owned(), b"waits".to_vec())]);
    let turns = sqlx::query("SELECT * FROM turns ORDER BY position").fetch_all(&mut *tx).await.unwrap();
    let statuses: Vec<String> = turns.iter().map(|row| row.get("status")).collect();
    assert_eq!(statuses, ["completed", "in_progress", "queued", "queued"]);
    assert_eq!(turns.iter().flat_map(blobs).collect::<Vec<_>>(), [b"out"], "what a Turn has printed stays");
}
