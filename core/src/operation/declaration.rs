//! Which methods a provider carries out (wire §3.1, node-host §9.1).

use std::collections::BTreeMap;

use super::{Method, MethodGroup};
use crate::limits::REASON_MAX_BYTES;

/// Whether a provider carries out a method.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Support {
    /// The method is carried out.
    Supported,
    /// The method is refused before any native I/O.
    Unsupported {
        /// Reason code of wire §0.2.
        reason: String,
    },
}

/// A validated decision for every method (wire §3.1, node-host §9.1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Declaration {
    entries: BTreeMap<Method, Support>,
}

/// One entry as it is written: `{"state": "supported"}` or `{"state": "unsupported", "reason": "…"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry<'a> {
    /// Provider method name.
    pub method: &'a str,
    /// `supported` or `unsupported`.
    pub state: &'a str,
    /// Only, and always, beside `unsupported`.
    pub reason: Option<&'a str>,
}

/// Why a declaration was refused; the provider must not accept work.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InvalidDeclaration {
    /// A name that is no method.
    #[error("the declaration names an unknown method")]
    Unknown,
    /// A state that does not exist, or one that contradicts the reason.
    #[error("method {} needs the state supported without a reason, or unsupported with one", .0.name())]
    State(Method),
    /// A method has no decision.
    #[error("method {} is not declared", .0.name())]
    Missing(Method),
    /// A method has two decisions.
    #[error("method {} is declared twice", .0.name())]
    Repeated(Method),
    /// Every provider carries out the five lifecycle methods.
    #[error("method {} must be supported", .0.name())]
    Required(Method),
    /// A group's methods are decided differently.
    #[error("method {} is decided differently from the rest of its group", .0.name())]
    Divided(Method),
    /// A reason is no reason code of wire §0.2.
    #[error("the reason of method {} is no reason code", .0.name())]
    Reason(Method),
}

/// Whether `text` is a reason code: `^[a-z][a-z0-9_]{0,95}$` on the whole text (wire §0.2).
#[must_use]
pub fn is_reason(text: &str) -> bool {
    text.len() <= REASON_MAX_BYTES
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

impl Declaration {
    /// Checks one decision for every method.
    ///
    /// # Errors
    /// The first method, in wire order, whose decision is missing, repeated, contradictory or badly explained.
    pub fn new(decisions: impl IntoIterator<Item = (Method, Support)>) -> Result<Self, InvalidDeclaration> {
        let mut entries = BTreeMap::new();
        for (method, support) in decisions {
            if entries.insert(method, support).is_some() {
                return Err(InvalidDeclaration::Repeated(method));
            }
        }
        let mut groups = BTreeMap::new();
        for method in Method::ALL {
            let support = entries.get(&method).ok_or(InvalidDeclaration::Missing(method))?;
            if let Support::Unsupported { reason } = support {
                if method.group() == MethodGroup::Lifecycle {
                    return Err(InvalidDeclaration::Required(method));
                }
                if !is_reason(reason) {
                    return Err(InvalidDeclaration::Reason(method));
                }
            }
            let supported = *support == Support::Supported;
            if *groups.entry(method.group()).or_insert(supported) != supported {
                return Err(InvalidDeclaration::Divided(method));
            }
        }
        Ok(Self { entries })
    }

    /// A declaration from one decision for each group but the lifecycle, which is supported.
    ///
    /// # Errors
    /// A reason that is no reason code.
    pub fn of_groups(
        observation: &Support,
        checkpoint: &Support,
        preparation: &Support,
    ) -> Result<Self, InvalidDeclaration> {
        Self::new(Method::ALL.into_iter().map(|method| {
            let support = match method.group() {
                MethodGroup::Lifecycle => Support::Supported,
                MethodGroup::Observation => observation.clone(),
                MethodGroup::Checkpoint => checkpoint.clone(),
                MethodGroup::Preparation => preparation.clone(),
            };
            (method, support)
        }))
    }

    /// Reads entries as they are written, then does as [`Declaration::new`].
    pub fn read<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> Result<Self, InvalidDeclaration> {
        let decisions: Result<Vec<_>, _> = entries.into_iter().map(decision).collect();
        Self::new(decisions?)
    }

    /// The decision for `method`.
    #[must_use]
    pub fn support(&self, method: Method) -> &Support {
        &self.entries[&method]
    }
}

fn decision(entry: Entry<'_>) -> Result<(Method, Support), InvalidDeclaration> {
    let method = Method::from_name(entry.method).ok_or(InvalidDeclaration::Unknown)?;
    match (entry.state, entry.reason) {
        ("supported", None) => Ok((method, Support::Supported)),
        ("unsupported", Some(reason)) => Ok((method, Support::Unsupported { reason: reason.to_owned() })),
        _ => Err(InvalidDeclaration::State(method)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsupported(reason: &str) -> Support {
        Support::Unsupported { reason: reason.to_owned() }
    }

    fn all_supported() -> Vec<(Method, Support)> {
        Method::ALL.map(|method| (method, Support::Supported)).to_vec()
    }

    #[test]
    fn method_without_a_decision_is_refused() {
        for method in Method::ALL {
            let decisions = all_supported().into_iter().filter(|(name, _)| *name != method);
            assert_eq!(Declaration::new(decisions), Err(InvalidDeclaration::Missing(method)));
        }
    }

    #[test]
    fn method_with_two_decisions_is_refused() {
        let decisions = all_supported().into_iter().chain([(Method::Observe, unsupported("a"))]);
        assert_eq!(Declaration::new(decisions), Err(InvalidDeclaration::Repeated(Method::Observe)));
    }

    #[test]
    fn lifecycle_method_cannot_be_unsupported() {
        let mut decisions = all_supported();
        decisions[3].1 = unsupported("no_kill");
        assert_eq!(Declaration::new(decisions), Err(InvalidDeclaration::Required(Method::Kill)));
    }

    #[test]
    fn half_supported_group_is_refused() {
        let mut decisions = all_supported();
        decisions[10].1 = unsupported("no_thaw");
        assert_eq!(Declaration::new(decisions), Err(InvalidDeclaration::Divided(Method::ResumeCompute)));
    }

    #[test]
    fn unsafe_reason_is_refused() {
        for reason in ["", "A", "1abc", "_abc", "native-metrics", "native_metrics\n", "\u{e9}", &"a".repeat(97)] {
            let refused = Declaration::of_groups(&unsupported(reason), &Support::Supported, &Support::Supported);
            assert_eq!(refused, Err(InvalidDeclaration::Reason(Method::Observe)), "{reason:?}");
        }
        let longest = "a".repeat(96);
        assert!(Declaration::of_groups(&unsupported(&longest), &unsupported("a0_9"), &Support::Supported).is_ok());
    }
}
