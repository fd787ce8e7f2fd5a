//! Observations of every session, a page at a time (deployment §1.12, §8.3).

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::observation::Observation;
use crate::admin::error::{Code, Fault};
use crate::admin::{Invalid, Validate, rule};
use crate::deployment::node::parse_id;
use crate::limits::{OBSERVATIONS_LISTED_DEFAULT, OBSERVATIONS_LISTED_MAX};
use crate::strict;
use crate::units::Id;

/// A page of observations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Observations {
    /// The literal `list`.
    pub object: ListObject,
    /// By the sessions' creation, then their identifiers, in the order that was asked for.
    pub data: Vec<strict::Object<Observed>>,
    /// There are more behind the last one.
    pub has_more: bool,
    /// The first one here.
    #[serde(deserialize_with = "strict::nullable")]
    pub first_id: Option<Id>,
    /// The last one here: `after` of the next page.
    #[serde(deserialize_with = "strict::nullable")]
    pub last_id: Option<Id>,
}

/// The literal `list`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ListObject {
    /// See the type.
    List,
}

/// An observation with its project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Observed {
    /// Whose.
    pub project_id: Id,
    /// Of the session that it is named after.
    #[serde(deserialize_with = "strict::nested")]
    pub observation: Observation,
}

impl Observations {
    /// A page, with its edges.
    #[must_use]
    pub fn new(data: Vec<Observed>, has_more: bool) -> Self {
        let edge = |row: Option<&Observed>| row.map(|row| row.observation.id);
        let (first_id, last_id) = (edge(data.first()), edge(data.last()));
        let data = data.into_iter().map(strict::Object).collect();
        Self { object: ListObject::List, data, has_more, first_id, last_id }
    }
}

impl Validate for Observations {
    fn validate(&self) -> Result<(), Invalid> {
        let ids: Vec<_> = self.data.iter().map(|strict::Object(row)| row.observation.id).collect();
        rule(self.first_id.as_ref() == ids.first() && self.last_id.as_ref() == ids.last(), "the edges of a page")?;
        rule(ids.iter().collect::<BTreeSet<_>>().len() == ids.len(), "each observation once")?;
        rule(!self.has_more || !ids.is_empty(), "more than nothing")
    }
}

/// Which page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// The last one of the page before.
    pub after: Option<Id>,
    /// At most so many, 1 to 100.
    pub limit: usize,
    /// From the newest on.
    pub newest_first: bool,
}

impl Page {
    /// Reads a query; each member stands at most once, others are no matter.
    ///
    /// # Errors
    /// 400 `invalid_request_error` with the member.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, Fault> {
        let (mut after, mut limit, mut order) = (None, None, None);
        for (name, value) in pairs {
            let (known, member) = match name {
                "after" => (&mut after, "after"),
                "limit" => (&mut limit, "limit"),
                "order" => (&mut order, "order"),
                _ => continue,
            };
            if known.replace(value).is_some() {
                return Err(Fault::of(Code::InvalidRequestError, member));
            }
        }
        let after = after.map(|id| parse_id(id).ok_or(Fault::of(Code::InvalidRequestError, "after"))).transpose()?;
        let within = |limit: &str| limit.parse().ok().filter(|limit| (1..=OBSERVATIONS_LISTED_MAX).contains(limit));
        let limit = limit.map_or(Some(OBSERVATIONS_LISTED_DEFAULT), within);
        let newest_first = match order {
            None | Some("desc") => true,
            Some("asc") => false,
            Some(_) => return Err(Fault::of(Code::InvalidRequestError, "order")),
        };
        Ok(Self { after, limit: limit.ok_or(Fault::of(Code::InvalidRequestError, "limit"))?, newest_first })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::observation::{Reason, Subject};
    use super::*;
    use crate::admin::time::Timestamp;
    use crate::deployment::tests::id;

    fn read(pairs: &[(&str, &str)]) -> Result<Page, Option<&'static str>> {
        Page::parse(pairs.iter().copied()).map_err(|fault| {
            assert_eq!(fault.code, Code::InvalidRequestError);
            fault.param
        })
    }

    #[test]
    fn a_page_has_its_defaults() {
        assert_eq!(read(&[]), Ok(Page { after: None, limit: 20, newest_first: true }));
        let after = id(7);
        let all = [("limit", "100"), ("order", "asc"), ("after", &after.to_string()), ("more", "x"), ("more", "y")];
        assert_eq!(read(&all), Ok(Page { after: Some(after), limit: 100, newest_first: false }));
        assert_eq!(read(&[("limit", "1")]).map(|page| page.limit), Ok(1));
    }

    #[rstest]
    #[case(&[("limit", "0")], "limit")]
    #[case(&[("limit", "101")], "limit")]
    #[case(&[("limit", "x")], "limit")]
    #[case(&[("limit", "2"), ("limit", "2")], "limit")]
    #[case(&[("order", "up")], "order")]
    #[case(&[("order", "asc"), ("order", "asc")], "order")]
    #[case(&[("after", "x")], "after")]
    #[case(&[("after", ""), ("after", "")], "after")]
    fn a_malformed_page_is_named(#[case] pairs: &[(&str, &str)], #[case] param: &'static str) {
        assert_eq!(read(pairs), Err(Some(param)));
    }

    fn page(ids: &[u8], has_more: bool) -> Observations {
        let row = |last: &u8| {
            let subject = Subject { session: id(*last), environment: id(2), provider: None, allocation: None };
            let observation = subject.unavailable(Reason::AllocationPending, Timestamp(0));
            Observed { project_id: id(1), observation }
        };
        Observations::new(ids.iter().map(row).collect(), has_more)
    }

    /// D 90. The edges of a page are those of its rows, each row stands once, and nothing is no part of more.
    #[test]
    fn a_page_agrees_with_its_rows() {
        for sound in [page(&[3, 4], true), page(&[3], false), page(&[], false)] {
            assert_eq!(sound.validate(), Ok(()));
        }
        assert!(page(&[3, 3], false).validate().is_err());
        assert!(page(&[], true).validate().is_err());
        assert!(Observations { first_id: None, ..page(&[3, 4], true) }.validate().is_err());
        assert!(Observations { last_id: Some(id(3)), ..page(&[3, 4], true) }.validate().is_err());
    }
}
