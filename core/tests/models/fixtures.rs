//! The values that all models speak of.

use palisade_core::admin::time::Timestamp;
use palisade_core::operation::{Call, Fencing, Operation};
use palisade_core::session::hub::presence::{Authority, Standing};
use palisade_core::session::hub::{Connection, Write};
use palisade_core::testing;
pub(crate) use palisade_core::testing::{declaration, deployment, epoch, generation, reference};
use palisade_core::units::{Generation, Id, Millis};
use palisade_core::wire::payload::{Health, Identity, Reference};
use palisade_core::wire::{Frame, encode};

/// The moment at which every clock stands.
pub(crate) const NOW: Millis = Millis(1_000_000);
/// The same on the database's clock.
pub(crate) const TIME: Timestamp = Timestamp(0);
pub(crate) const NODE: Id = Id::from_random([100; 16]);

const INSTALLATION: Id = Id::from_random([101; 16]);

pub(crate) const fn id(number: u8) -> Id {
    Id::from_random([number; 16])
}

/// Core's own record, with the specifications of three generations.
pub(crate) fn authority(owner: u64, target: u64) -> Authority {
    let digests = (1..=3).map(|number| (generation(number), reference(number).specification_digest));
    Authority {
        installation: Some(INSTALLATION),
        owner_epoch: Some(epoch(owner)),
        target: Some(generation(target)),
        digests: digests.collect(),
    }
}

/// The record of the node before it ever connected.
pub(crate) fn standing(pin: u64) -> Standing {
    Standing { pin: Some(generation(pin)), ..Standing::enrolled(INSTALLATION) }
}

pub(crate) fn identity() -> Identity<'static> {
    let (node_id, installation_id) = (NODE.to_string().into(), INSTALLATION.to_string().into());
    Identity { node_id, installation_id, ..testing::identity() }
}

pub(crate) fn health() -> Health<'static> {
    testing::health([])
}

/// A request that needs no ready generation.
pub(crate) fn call(request: Id, generation: Generation, timeout_ms: u64) -> Call<'static> {
    let reference = Reference { tenant: id(1), environment: id(2), allocation: id(3) };
    Call { id: request, deployment_generation: generation, reference, timeout_ms, operation: Operation::GetInfo }
}

/// What a connection of Core writes; requests are those of [`call`], to generation 1.
pub(crate) fn frame(machine: &Connection, write: Write) -> String {
    let frame = match write {
        Write::Welcome(announcement) => Frame::Welcome(announcement),
        Write::HeartbeatAck(announcement) => Frame::HeartbeatAck(announcement),
        Write::RetentionAck { exchange, retentions, deployment } => {
            Frame::RetentionAck { exchange, retentions, deployment }
        }
        Write::Request { id, sequence, timeout_ms } => {
            let (owner_epoch, connection_id) = (machine.owner_epoch(), machine.connection_id());
            let call = call(id, generation(1), timeout_ms);
            Frame::Request(Box::new(call.into_request(Fencing { sequence, owner_epoch, connection_id })))
        }
    };
    String::from_utf8(encode(&frame).expect("Core writes valid frames only")).unwrap()
}
