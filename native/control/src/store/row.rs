//! Typed columns of a row.

use palisade_core::units::{Digest, Generation, Id};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::{Result, StoreError, Timestamp};

/// Reads checked values out of a row; a value that Core never writes is [`StoreError::Corrupt`].
pub trait Columns {
    /// A text.
    fn text(&self, column: &'static str) -> Result<String>;
    /// A nullable text, in the row.
    fn str_opt(&self, column: &'static str) -> Result<Option<&str>>;
    /// A nullable text.
    fn text_opt(&self, column: &'static str) -> Result<Option<String>>;
    /// Nullable bytes.
    fn bytes_opt(&self, column: &'static str) -> Result<Option<Vec<u8>>>;
    /// An integer.
    fn int(&self, column: &'static str) -> Result<i64>;
    /// A nullable integer.
    fn int_opt(&self, column: &'static str) -> Result<Option<i64>>;
    /// A nullable floating-point number.
    fn float_opt(&self, column: &'static str) -> Result<Option<f64>>;

    /// A count, never negative.
    fn count(&self, column: &'static str) -> Result<u64> {
        self.int(column)?.try_into().map_err(|_| StoreError::Corrupt { column })
    }
    /// A nullable count, never negative.
    fn count_opt(&self, column: &'static str) -> Result<Option<u64>> {
        self.int_opt(column)?.map(u64::try_from).transpose().map_err(|_| StoreError::Corrupt { column })
    }
    /// A flag, 0 or 1.
    fn flag(&self, column: &'static str) -> Result<bool> {
        Ok(self.int(column)? != 0)
    }
    /// A time.
    fn time(&self, column: &'static str) -> Result<Timestamp> {
        self.int(column).map(Timestamp)
    }
    /// A nullable time.
    fn time_opt(&self, column: &'static str) -> Result<Option<Timestamp>> {
        Ok(self.int_opt(column)?.map(Timestamp))
    }
    /// An identifier.
    fn id(&self, column: &'static str) -> Result<Id> {
        self.id_opt(column)?.ok_or(StoreError::Corrupt { column })
    }
    /// A nullable identifier.
    fn id_opt(&self, column: &'static str) -> Result<Option<Id>> {
        self.str_opt(column)?.map(Id::parse).transpose().map_err(|_| StoreError::Corrupt { column })
    }
    /// A digest.
    fn digest(&self, column: &'static str) -> Result<Digest> {
        let text = self.str_opt(column)?.ok_or(StoreError::Corrupt { column })?;
        Digest::parse(text).map_err(|_| StoreError::Corrupt { column })
    }
    /// A generation.
    fn generation(&self, column: &'static str) -> Result<Generation> {
        self.generation_opt(column)?.ok_or(StoreError::Corrupt { column })
    }
    /// A nullable generation.
    fn generation_opt(&self, column: &'static str) -> Result<Option<Generation>> {
        let Some(value) = self.count_opt(column)? else { return Ok(None) };
        Generation::new(value).map(Some).ok_or(StoreError::Corrupt { column })
    }
}

impl Columns for AnyRow {
    fn text(&self, column: &'static str) -> Result<String> {
        Ok(self.try_get(column)?)
    }
    fn str_opt(&self, column: &'static str) -> Result<Option<&str>> {
        Ok(self.try_get(column)?)
    }
    fn text_opt(&self, column: &'static str) -> Result<Option<String>> {
        Ok(self.try_get(column)?)
    }
    fn bytes_opt(&self, column: &'static str) -> Result<Option<Vec<u8>>> {
        Ok(self.try_get(column)?)
    }
    fn int(&self, column: &'static str) -> Result<i64> {
        Ok(self.try_get(column)?)
    }
    fn int_opt(&self, column: &'static str) -> Result<Option<i64>> {
        Ok(self.try_get(column)?)
    }
    fn float_opt(&self, column: &'static str) -> Result<Option<f64>> {
        Ok(self.try_get(column)?)
    }
}
