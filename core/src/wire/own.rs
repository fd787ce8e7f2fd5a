//! From a payload that borrows its message to one that does not.

use std::borrow::Cow;

use super::frame::{Request, Response};
use super::payload::{
    Bootstrap, Checkpoint, Command, CommandResult, Compute, ComputeState, Health, Identity, Info, Instance,
    Observation, ObservationTarget, ObservedState, RawReference, Resume, Sample, Secret, Snapshot, Suspend,
    UnsupportedEvidence, Workspace,
};
use crate::units::{Digest, Generation, Id, OwnerEpoch, Sequence};

/// A value that can let go of the message it was read from.
pub trait IntoOwned {
    /// The same type, borrowing nothing.
    type Owned: 'static;

    /// Copies whatever is borrowed.
    fn into_owned(self) -> Self::Owned;
}

impl<B: ToOwned + ?Sized + 'static> IntoOwned for Cow<'_, B>
where
    B::Owned: 'static,
{
    type Owned = Cow<'static, B>;
    fn into_owned(self) -> Cow<'static, B> {
        Cow::Owned(Cow::into_owned(self))
    }
}

impl<T: IntoOwned> IntoOwned for Option<T> {
    type Owned = Option<T::Owned>;
    fn into_owned(self) -> Self::Owned {
        self.map(T::into_owned)
    }
}

impl<T: IntoOwned> IntoOwned for Vec<T> {
    type Owned = Vec<T::Owned>;
    fn into_owned(self) -> Self::Owned {
        self.into_iter().map(T::into_owned).collect()
    }
}

impl<T: IntoOwned> IntoOwned for Box<T> {
    type Owned = Box<T::Owned>;
    fn into_owned(self) -> Self::Owned {
        Box::new((*self).into_owned())
    }
}

macro_rules! plain {
    ($($name:ty),+) => { $(impl IntoOwned for $name {
        type Owned = Self;
        fn into_owned(self) -> Self { self }
    })+ };
}
plain!(bool, u32, u64, i64, f64, Generation, Sequence, OwnerEpoch, Id, Digest);

macro_rules! fields {
    ($($name:ident { $($field:ident),+ $(,)? })+) => { $(impl IntoOwned for $name<'_> {
        type Owned = $name<'static>;
        fn into_owned(self) -> Self::Owned {
            let Self { $($field),+ } = self;
            $name { $($field: IntoOwned::into_owned($field)),+ }
        }
    })+ };
}

fields! {
    Bootstrap {
        tenant_id, environment_id, allocation_id, session_id, device_id, core_url, credential, network_access,
        allowed_domains, workspace,
    }
    Compute { generation, name, id, restored_from }
    ComputeState { compute, status, bootstrap_complete, snapshot, source_stopped }
    Snapshot {
        reference, id, digest, checkpoint_id, checkpoint_root, operation_id, source_generation, source_name, source_id,
    }
    Command { args, directory, stdin }
    CommandResult { stdout, stderr, exit_code }
    Suspend { reference, operation_id, source, snapshot, observe_only }
    Resume { workspace, reference, operation_id, snapshot, target, observe_only }
    RawReference { tenant_id, environment_id, allocation_id }
    Identity {
        node_id, installation_id, provider, backend_fingerprint, deployment_generation, specification_digest,
        max_active, max_retained,
    }
    Health {
        observed_at, active_operations, cpu_utilization, total_memory_bytes, effective_cpu_cores, cpu_count,
        available_memory_bytes, available_disk_bytes, generations,
    }
    Observation { generation, specification_digest, state }
    Checkpoint { artifact_domain, execution_class }
    ObservationTarget { tenant_id, session_id, environment_id, mode, instance, token_usage_present }
    Instance {
        allocation_id, provider_key, connection_generation, allocation_state, allocation_created_at, compute_phase,
        provider_state,
    }
    Sample {
        observed_at, started_at, cpu_usage_seconds_total, cpu_capacity_cores, cpu_utilization_ratio,
        memory_usage_bytes, memory_limit_bytes, disk_usage_bytes, disk_limit_bytes,
    }
    Info { reference, provider_id, state, bootstrap_complete, create_settled }
    UnsupportedEvidence { operation, reason }
    Workspace {
        configuration_id, adapter, parameters, tenant_id, environment_id, object_id, attachment_configuration_id,
        kind, native,
    }
    Request {
        deployment_generation, sequence, owner_epoch, connection_id, id, operation, timeout_ms, reference, bootstrap,
        compute, generation, command, suspend, resume, snapshot, observation, key,
    }
    Response { id, connection_id, error_code, unsupported, info, compute, state, command, sample, restored }
}

impl IntoOwned for Secret<'_> {
    type Owned = Secret<'static>;
    fn into_owned(self) -> Self::Owned {
        Secret(IntoOwned::into_owned(self.0))
    }
}

impl IntoOwned for ObservedState<'_> {
    type Owned = ObservedState<'static>;
    fn into_owned(self) -> Self::Owned {
        match self {
            Self::Ready { checkpoint } => ObservedState::Ready { checkpoint: checkpoint.into_owned() },
            Self::Preparing { diagnostic } => ObservedState::Preparing { diagnostic },
            Self::Failed { diagnostic } => ObservedState::Failed { diagnostic },
        }
    }
}
