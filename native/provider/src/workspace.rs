//! Workspace bindings: a directory of the host that holds a sandbox's workspace (wire §2.15, node-host §9.4).
//!
//! A provider calls [`Policy::bind`] before its first native call of a creation or a restore, also when a restore only
//! observes, and hands on nothing but the [`Bound`] directory. Neither kind of provider falls back to the other.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use palisade_core::outcome::{Failed, Failure};
use palisade_core::units::Id;
use palisade_core::wire::payload::{Reference, Workspace};

use crate::refused_before_native_call;

/// Reason code of a provider without workspace storage.
pub const EXTERNAL_WORKSPACE_UNSUPPORTED: &str = "external_workspace_unsupported";

/// The only kind of attachment there is.
const HOST_DIRECTORY: &str = "host_directory";

/// Turns a binding that passed the envelope checks into a directory of this host, and validates native ownership.
#[async_trait]
pub trait Resolver: Send + Sync + 'static {
    /// The clean absolute directory that the attachment stands for.
    ///
    /// # Errors
    /// `ownership` when the native object belongs to somebody else, `invalid` when it cannot be used, else
    /// `unconfirmed`.
    async fn resolve(&self, reference: Reference, binding: &Workspace<'static>) -> Result<PathBuf, Failure>;
}

/// A resolved binding; the binding itself goes no further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Clean and absolute.
    pub directory: PathBuf,
    /// The immutable object.
    pub object: Id,
}

/// Whether a provider stores workspaces, and who resolves them.
#[derive(Clone)]
pub enum Policy {
    /// A present binding is refused.
    NoStorage,
    /// An absent binding is refused, and so is everything without a resolver.
    Storage(Option<Arc<dyn Resolver>>),
}

impl Policy {
    /// The directory to use, `None` when the provider has no workspace storage and none was asked for.
    ///
    /// # Errors
    /// Always before native work, with an absent `CreateSettled` receipt: `unsupported` for a present binding without
    /// storage; `invalid` for an absent one with storage, a malformed one, a missing resolver or a directory that is
    /// not clean; `ownership` for somebody else's; and what the resolver says.
    pub async fn bind(
        &self,
        method: &'static str,
        reference: Reference,
        binding: Option<&Workspace<'static>>,
    ) -> Result<Option<Bound>, Failed<'static>> {
        let bound = match (self, binding) {
            (Self::NoStorage, None) => Ok(None),
            (Self::NoStorage, Some(_)) => Err(unsupported(method)),
            (Self::Storage(_), None) | (Self::Storage(None), Some(_)) => Err(Failure::Invalid),
            (Self::Storage(Some(resolver)), Some(binding)) => resolve(&**resolver, reference, binding).await.map(Some),
        };
        bound.map_err(|failure| refused_before_native_call(failure, reference))
    }
}

fn unsupported(method: &'static str) -> Failure {
    Failure::Unsupported { method: method.to_owned(), reason: EXTERNAL_WORKSPACE_UNSUPPORTED.to_owned() }
}

async fn resolve(
    resolver: &dyn Resolver,
    reference: Reference,
    binding: &Workspace<'static>,
) -> Result<Bound, Failure> {
    let object = owned_object(reference, binding)?;
    let directory = resolver.resolve(reference, binding).await?;
    if !is_clean(&directory) {
        return Err(Failure::Invalid);
    }
    Ok(Bound { directory, object })
}

/// Tenant, Environment, object and configuration, each checked by itself (W 137).
fn owned_object(reference: Reference, binding: &Workspace<'_>) -> Result<Id, Failure> {
    let parse = |text: &str| Id::parse(text).map_err(|_| Failure::Invalid);
    if parse(&binding.tenant_id)? != reference.tenant || parse(&binding.environment_id)? != reference.environment {
        return Err(Failure::Ownership);
    }
    if parse(&binding.attachment_configuration_id)? != parse(&binding.configuration_id)? {
        return Err(Failure::Ownership);
    }
    if binding.kind != HOST_DIRECTORY {
        return Err(Failure::Invalid);
    }
    parse(&binding.object_id)
}

/// Absolute, without `.`, `..`, doubled or trailing separators.
fn is_clean(path: &Path) -> bool {
    let mut rebuilt = PathBuf::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::Normal(_) => rebuilt.push(component),
            Component::Prefix(_) | Component::CurDir | Component::ParentDir => return false,
        }
    }
    path.is_absolute() && rebuilt.as_os_str() == path.as_os_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clean_absolute_directories_pass() {
        for clean in ["/", "/a", "/a/b.c"] {
            assert!(is_clean(Path::new(clean)), "{clean}");
        }
        for dirty in ["", "a", "./a", "/a/", "/a//b", "/a/./b", "/a/../b", "//a"] {
            assert!(!is_clean(Path::new(dirty)), "{dirty}");
        }
    }
}
