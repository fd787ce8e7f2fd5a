//! One method of one path: what it takes, what it answers, and every refusal that it may give.

use axum::http::{Method, StatusCode};
use axum::routing::MethodFilter;
use palisade_core::admin::error::Code;
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// Which key a path wants, by its prefix (deployment §1.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Authority {
    /// A Core key.
    Administrator,
    /// A project key.
    Project,
    /// An enrollment token or a node's credential.
    Machine,
    /// None.
    Nobody,
}

impl Authority {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Administrator, Self::Project, Self::Machine, Self::Nobody];

    /// Who may ask on a path.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let below =
            |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        match path {
            _ if below("/core/v1") || below("/console") => Self::Administrator,
            _ if below("/v1") => Self::Project,
            _ if below("/api/v1") => Self::Machine,
            _ => Self::Nobody,
        }
    }

    /// What every operation of it may refuse with.
    const fn refusals(self) -> &'static [Code] {
        match self {
            Self::Administrator => &[Code::InvalidAdminKey, Code::InternalError, Code::OutcomeUnknown],
            Self::Project => {
                &[Code::InvalidApiKey, Code::InvalidRequestError, Code::InternalError, Code::OutcomeUnknown]
            }
            Self::Machine => &[Code::InvalidNodeCredential, Code::RuntimeNodeUnavailable],
            Self::Nobody => &[],
        }
    }
}

/// How a schema is put into a document.
pub(super) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// A parameter of a query or a header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// `query` or `header`.
    pub(super) place: &'static str,
    pub(super) required: bool,
    pub(super) description: &'static str,
}

/// What an answer holds.
#[derive(Clone, Copy)]
pub(super) enum Content {
    /// JSON of this schema.
    Json(Describe),
    /// Anything of this media type.
    Media(&'static str),
    /// Nothing.
    Empty,
    /// An error envelope without a code.
    Unnamed,
}

/// One method of one path.
pub struct Operation {
    pub(super) method: Method,
    pub(super) name: &'static str,
    path: &'static str,
    pub(super) summary: &'static str,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Describe>,
    pub(super) answers: Vec<(StatusCode, Content)>,
    refusals: Vec<Code>,
}

macro_rules! methods {
    ($($name:ident $method:ident;)*) => {$(
        #[doc = concat!("A `", stringify!($method), "`; `name` is its `operationId`.")]
        #[must_use]
        pub fn $name(path: &'static str, name: &'static str, summary: &'static str) -> Operation {
            Operation::new(Method::$method, path, name, summary)
        }
    )*};
}

methods! {
    get GET;
    post POST;
    put PUT;
    patch PATCH;
    delete DELETE;
}

impl Operation {
    fn new(method: Method, path: &'static str, name: &'static str, summary: &'static str) -> Self {
        let mut refusals = Authority::of(path).refusals().to_vec();
        if path.contains('{') {
            refusals.push(Code::InvalidRequest);
        }
        Self { method, name, path, summary, parameters: Vec::new(), body: None, answers: Vec::new(), refusals }
    }

    /// Takes a JSON body that is read as a `T`.
    #[must_use]
    pub fn takes<T: JsonSchema>(mut self) -> Self {
        self.body = Some(SchemaGenerator::subschema_for::<T>);
        self.refuses(&[Code::InvalidRequest, Code::RequestTooLarge, Code::RequestTimeout])
    }

    /// Takes a member of the query, at most once.
    #[must_use]
    pub fn query(mut self, name: &'static str, required: bool, description: &'static str) -> Self {
        self.parameters.push(Parameter { name, place: "query", required, description });
        self
    }

    /// Takes a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, required: bool, description: &'static str) -> Self {
        self.parameters.push(Parameter { name, place: "header", required, description });
        self
    }

    /// Answers with a `T` as JSON.
    #[must_use]
    pub fn answers<T: JsonSchema>(self, status: StatusCode) -> Self {
        self.answer(status, Content::Json(SchemaGenerator::subschema_for::<T>))
    }

    /// Answers with something that is not JSON.
    #[must_use]
    pub fn answers_media(self, status: StatusCode, media: &'static str) -> Self {
        self.answer(status, Content::Media(media))
    }

    /// Answers with nothing.
    #[must_use]
    pub fn answers_empty(self, status: StatusCode) -> Self {
        self.answer(status, Content::Empty)
    }

    /// Refuses with an envelope whose code is null.
    #[must_use]
    pub fn refuses_unnamed(mut self, statuses: &[StatusCode]) -> Self {
        self.refusals.clear();
        self.answers.extend(statuses.iter().map(|status| (*status, Content::Unnamed)));
        self
    }

    fn answer(mut self, status: StatusCode, content: Content) -> Self {
        self.answers.push((status, content));
        self
    }

    /// Refuses with these codes, beside those that every operation of its authority has.
    #[must_use]
    pub fn refuses(mut self, codes: &[Code]) -> Self {
        self.refusals.extend(codes.iter().filter(|code| !self.refusals.contains(code)).copied().collect::<Vec<_>>());
        self
    }

    /// Its path, with names in braces.
    #[must_use]
    pub const fn path(&self) -> &'static str {
        self.path
    }

    /// What the router is asked for.
    pub(super) fn filter(&self) -> MethodFilter {
        MethodFilter::try_from(self.method.clone()).expect("only the methods of this module are made")
    }

    /// The codes of every status that it refuses with, statuses ascending.
    pub(super) fn refusals(&self) -> std::collections::BTreeMap<u16, Vec<Code>> {
        let mut by_status = std::collections::BTreeMap::<_, Vec<_>>::new();
        for code in &self.refusals {
            by_status.entry(code.status()).or_default().push(*code);
        }
        by_status
    }

    /// The names in the path.
    pub(super) fn segments(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
    }
}
