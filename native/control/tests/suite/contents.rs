//! Everything that a store holds, to be compared.

use std::collections::BTreeMap;

use palisade_control::store::Store;
use sqlx::any::{AnyRow, AnyTypeInfoKind};
use sqlx::{AnyConnection, Column as _, Row as _, ValueRef as _};

/// Rows of a table, in the order of all their columns.
pub(crate) type Rows = Vec<BTreeMap<String, String>>;

/// The tables that any migration has made.
pub(crate) fn tables() -> Vec<&'static str> {
    static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");
    let made = |sql: &'static str| sql.lines().filter_map(|line| line.strip_prefix("CREATE TABLE ")?.split(' ').next());
    MIGRATIONS.iter().flat_map(|migration| made(migration.sql.as_str())).collect()
}

/// Every row of a table; `None` when there is no such table.
pub(crate) async fn rows_of(connection: &mut AnyConnection, table: &str) -> Option<Rows> {
    let query = format!("SELECT * FROM {table}");
    let rows = sqlx::query(sqlx::AssertSqlSafe(query)).fetch_all(connection).await.ok()?;
    let mut rows: Rows = rows.iter().map(|row| (0..row.len()).map(|at| value(row, at)).collect()).collect();
    rows.sort();
    Some(rows)
}

fn value(row: &AnyRow, at: usize) -> (String, String) {
    let text = match row.try_get_raw(at).unwrap().type_info().kind() {
        AnyTypeInfoKind::Null => "null".to_owned(),
        AnyTypeInfoKind::Text => format!("{:?}", row.get::<Option<String>, _>(at)),
        AnyTypeInfoKind::Blob => format!("{:?}", row.get::<Option<Vec<u8>>, _>(at)),
        AnyTypeInfoKind::Double | AnyTypeInfoKind::Real => format!("{:?}", row.get::<Option<f64>, _>(at)),
        AnyTypeInfoKind::Bool | AnyTypeInfoKind::SmallInt | AnyTypeInfoKind::Integer | AnyTypeInfoKind::BigInt => {
            format!("{:?}", row.get::<Option<i64>, _>(at))
        }
    };
    (row.column(at).name().to_owned(), text)
}

/// Everything that a store holds.
pub(crate) async fn contents(store: &Store) -> BTreeMap<&'static str, Rows> {
    let mut tx = store.read().await.unwrap();
    let mut all = BTreeMap::new();
    for table in tables() {
        all.insert(table, rows_of(&mut tx, table).await.expect(table));
    }
    all
}
