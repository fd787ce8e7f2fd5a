//! Query strings, read strictly.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// The pairs of a query string after percent-decoding, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query(Vec<(String, String)>);

/// A member that may stand once stands twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeated;

impl Query {
    /// Every value of a member.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a member that may stand once: `Err` when it is repeated.
    pub fn at_most_one<'a>(&'a self, name: &str) -> Result<Option<&'a str>, Repeated> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(Repeated),
        }
    }

    /// Every pair, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether no member but these stands in it.
    #[must_use]
    pub fn only(&self, names: &[&str]) -> bool {
        self.0.iter().all(|(name, _)| names.contains(&name.as_str()))
    }

    fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_stands_once_or_is_refused() {
        let query = Query::parse("a=1&b=%2B+&b=3");
        assert_eq!(query.at_most_one("a"), Ok(Some("1")));
        assert_eq!(query.at_most_one("b"), Err(Repeated));
        assert_eq!(query.at_most_one("c"), Ok(None));
        assert_eq!(query.all("b").collect::<Vec<_>>(), ["+ ", "3"]);
        assert!(query.only(&["a", "b"]) && !query.only(&["a"]));
    }
}
