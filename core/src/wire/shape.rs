//! How the payloads that are not written member by member stand in JSON.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::frame::{Request, Response};
use super::json::{self, objects};
use super::payload::{
    Bootstrap, Checkpoint, Command, CommandResult, Compute, ComputeState, Deployment, Diagnostic, GenerationReference,
    Health, Identity, Info, Instance, Observation, ObservationTarget, ObservedState, RawReference, Resume, Retention,
    Sample, Snapshot, Suspend, Text, UnsupportedEvidence, Workspace,
};
use super::violation::Reason;
use crate::units::{Digest, Generation};

objects!(
    Bootstrap<'a>,
    Checkpoint<'a>,
    Command<'a>,
    CommandResult<'a>,
    Compute<'a>,
    ComputeState<'a>,
    Deployment,
    GenerationReference,
    Health<'a>,
    Identity<'a>,
    Instance<'a>,
    ObservationTarget<'a>,
    RawReference<'a>,
    Request<'a>,
    Response<'a>,
    Resume<'a>,
    Sample<'a>,
    Snapshot<'a>,
    Suspend<'a>,
    UnsupportedEvidence<'a>,
);

/// Lets `$name` stand in JSON as `$members` does.
macro_rules! through {
    ($name:ident $(<$life:lifetime>)? as $members:ident) => {
        objects!($members $(<$life>)?);

        impl<'de $(: $life, $life)?> Deserialize<'de> for $name $(<$life>)? {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let members: $members $(<$life>)? = Deserialize::deserialize(deserializer)?;
                Self::try_from(members).map_err(de::Error::custom)
            }
        }

        impl $(<$life>)? Serialize for $name $(<$life>)? {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Serialize::serialize(&$members::from(self), serializer)
            }
        }
    };
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
struct InfoMembers<'a> {
    #[serde(rename = "TenantID", borrow)]
    tenant_id: Cow<'a, str>,
    #[serde(rename = "EnvironmentID", borrow)]
    environment_id: Cow<'a, str>,
    #[serde(rename = "AllocationID", borrow)]
    allocation_id: Cow<'a, str>,
    #[serde(rename = "ProviderID", borrow)]
    provider_id: Cow<'a, str>,
    #[serde(borrow)]
    state: Cow<'a, str>,
    bootstrap_complete: bool,
    create_settled: bool,
}

through!(Info<'a> as InfoMembers);

impl<'a> From<InfoMembers<'a>> for Info<'a> {
    fn from(members: InfoMembers<'a>) -> Self {
        let InfoMembers { tenant_id, environment_id, allocation_id, .. } = members;
        Self {
            reference: RawReference { tenant_id, environment_id, allocation_id },
            provider_id: members.provider_id,
            state: members.state,
            bootstrap_complete: members.bootstrap_complete,
            create_settled: members.create_settled,
        }
    }
}

/// Borrows a text for writing.
fn lend<'a>(text: &'a Text<'_>) -> Text<'a> {
    Text::Borrowed(text)
}

impl<'a> From<&'a Info<'_>> for InfoMembers<'a> {
    fn from(info: &'a Info<'_>) -> Self {
        Self {
            tenant_id: lend(&info.reference.tenant_id),
            environment_id: lend(&info.reference.environment_id),
            allocation_id: lend(&info.reference.allocation_id),
            provider_id: lend(&info.provider_id),
            state: lend(&info.state),
            bootstrap_complete: info.bootstrap_complete,
            create_settled: info.create_settled,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
struct BindingMembers<'a> {
    #[serde(borrow)]
    configuration: ConfigurationMembers<'a>,
    #[serde(borrow)]
    attachment: AttachmentMembers<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
struct ConfigurationMembers<'a> {
    #[serde(rename = "ID", borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    adapter: Cow<'a, str>,
    #[serde(borrow, with = "json::opaque_object")]
    parameters: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
struct AttachmentMembers<'a> {
    #[serde(borrow)]
    reference: ObjectMembers<'a>,
    #[serde(rename = "ConfigurationID", borrow)]
    configuration_id: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, with = "json::opaque_object")]
    native: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
#[allow(clippy::struct_field_names, reason = "the wire's names")]
struct ObjectMembers<'a> {
    #[serde(rename = "TenantID", borrow)]
    tenant_id: Cow<'a, str>,
    #[serde(rename = "EnvironmentID", borrow)]
    environment_id: Cow<'a, str>,
    #[serde(rename = "ObjectID", borrow)]
    object_id: Cow<'a, str>,
}

objects!(ConfigurationMembers<'a>, AttachmentMembers<'a>, ObjectMembers<'a>);
through!(Workspace<'a> as BindingMembers);

impl<'a> From<BindingMembers<'a>> for Workspace<'a> {
    fn from(BindingMembers { configuration, attachment }: BindingMembers<'a>) -> Self {
        Self {
            configuration_id: configuration.id,
            adapter: configuration.adapter,
            parameters: configuration.parameters,
            tenant_id: attachment.reference.tenant_id,
            environment_id: attachment.reference.environment_id,
            object_id: attachment.reference.object_id,
            attachment_configuration_id: attachment.configuration_id,
            kind: attachment.kind,
            native: attachment.native,
        }
    }
}

impl<'a> From<&'a Workspace<'_>> for BindingMembers<'a> {
    fn from(binding: &'a Workspace<'_>) -> Self {
        Self {
            configuration: ConfigurationMembers {
                id: lend(&binding.configuration_id),
                adapter: lend(&binding.adapter),
                parameters: lend(&binding.parameters),
            },
            attachment: AttachmentMembers {
                reference: ObjectMembers {
                    tenant_id: lend(&binding.tenant_id),
                    environment_id: lend(&binding.environment_id),
                    object_id: lend(&binding.object_id),
                },
                configuration_id: lend(&binding.attachment_configuration_id),
                kind: lend(&binding.kind),
                native: lend(&binding.native),
            },
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct RetentionMembers {
    generation: Generation,
    specification_digest: Digest,
    keep: bool,
}

through!(Retention as RetentionMembers);

impl From<RetentionMembers> for Retention {
    fn from(members: RetentionMembers) -> Self {
        let RetentionMembers { generation, specification_digest, keep } = members;
        Self { reference: GenerationReference { generation, specification_digest }, keep }
    }
}

impl From<&Retention> for RetentionMembers {
    fn from(Retention { reference, keep }: &Retention) -> Self {
        let GenerationReference { generation, specification_digest } = *reference;
        Self { generation, specification_digest, keep: *keep }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct ObservationMembers<'a> {
    generation: Generation,
    specification_digest: Digest,
    #[serde(borrow)]
    state: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present_text")]
    diagnostic: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    checkpoint: Option<Checkpoint<'a>>,
}

through!(Observation<'a> as ObservationMembers);

impl<'a> TryFrom<ObservationMembers<'a>> for Observation<'a> {
    type Error = Reason;

    fn try_from(members: ObservationMembers<'a>) -> Result<Self, Reason> {
        let ObservationMembers { generation, specification_digest, state, diagnostic, checkpoint } = members;
        let class = |code: Text<'_>| Diagnostic::from_code(&code).ok_or(Reason::Diagnostic);
        let diagnostic = diagnostic.map(class).transpose()?;
        let state = match (&*state, diagnostic, checkpoint) {
            ("ready", None, checkpoint) => ObservedState::Ready { checkpoint },
            ("preparing", diagnostic, None) => ObservedState::Preparing { diagnostic },
            ("failed", diagnostic, None) => ObservedState::Failed { diagnostic },
            ("ready" | "preparing" | "failed", ..) => return Err(Reason::StateMember),
            _ => return Err(Reason::State),
        };
        Ok(Self { generation, specification_digest, state })
    }
}

impl<'a> From<&'a Observation<'_>> for ObservationMembers<'a> {
    fn from(observation: &'a Observation<'_>) -> Self {
        let (state, diagnostic, checkpoint) = match &observation.state {
            ObservedState::Ready { checkpoint } => ("ready", None, checkpoint.as_ref()),
            ObservedState::Preparing { diagnostic } => ("preparing", *diagnostic, None),
            ObservedState::Failed { diagnostic } => ("failed", *diagnostic, None),
        };
        Self {
            generation: observation.generation,
            specification_digest: observation.specification_digest,
            state: state.into(),
            diagnostic: diagnostic.map(|class| class.code().into()),
            checkpoint: checkpoint.map(|tokens| Checkpoint {
                artifact_domain: lend(&tokens.artifact_domain),
                execution_class: lend(&tokens.execution_class),
            }),
        }
    }
}
