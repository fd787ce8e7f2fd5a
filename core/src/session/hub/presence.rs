//! Under which connection something was recorded (wire §5.5).

use crate::units::{Id, OwnerEpoch};

/// A connection and the epoch it was opened under. Presence, observations and their end speak for exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Connected {
    /// Which connection.
    pub connection_id: Id,
    /// Under which epoch.
    pub owner_epoch: OwnerEpoch,
}
