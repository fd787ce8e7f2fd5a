//! At most one connection per node identity (wire §5.2).
//!
//! - Never are two connections of one identity accepted, whatever the first is in the middle of
//!   (`second_connection_of_one_identity_gets_conflict_in_every_phase`, `one_connection_and_one_epoch_count`).
//! - Never does an old ticket change a newer reservation (`stale_ticket_changes_nothing`).
//! - Never does a conflict last longer than 35 s after the old socket went silent
//!   (`a_conflict_clears_35_seconds_after_the_old_socket_went_silent`).

use std::collections::BTreeMap;

use crate::units::Id;

/// Who holds which node identity.
///
/// ```text
///  (free) ──reserve──▶ Opening ──publish──▶ Live
///                         │                  │
///                         └────── close ─────┴──▶ Closing ──release──▶ (free)
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Reservations {
    held: BTreeMap<Id, (Ticket, Phase)>,
    issued: u64,
    closing: bool,
}

/// Proof of one reservation; an old ticket changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// What a reservation is in the middle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Before requests can find the connection.
    Opening,
    /// Requests can find it.
    Live,
    /// Until the last callback returned.
    Closing,
}

/// Why an identity could not be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Another connection holds it: 409.
    Conflict(Phase),
    /// Core is closing: 503.
    Closing,
}

impl Reservations {
    /// Reserves `node` for a connection that is about to open.
    pub fn reserve(&mut self, node: Id) -> Result<Ticket, Refused> {
        if self.closing {
            return Err(Refused::Closing);
        }
        if let Some((_, phase)) = self.held.get(&node) {
            return Err(Refused::Conflict(*phase));
        }
        self.issued += 1;
        self.held.insert(node, (Ticket(self.issued), Phase::Opening));
        Ok(Ticket(self.issued))
    }

    /// The connection is live.
    pub fn publish(&mut self, node: Id, ticket: Ticket) {
        self.change(node, ticket, Phase::Live);
    }

    /// The connection ended, its last callback has not.
    pub fn close(&mut self, node: Id, ticket: Ticket) {
        self.change(node, ticket, Phase::Closing);
    }

    /// The last callback returned; the identity is free.
    pub fn release(&mut self, node: Id, ticket: Ticket) {
        if self.held.get(&node).is_some_and(|(held, _)| *held == ticket) {
            self.held.remove(&node);
        }
    }

    /// What `node` is in the middle of, if it is reserved.
    #[must_use]
    pub fn phase(&self, node: Id) -> Option<Phase> {
        self.held.get(&node).map(|(_, phase)| *phase)
    }

    /// Core closes: nothing is reserved any more.
    pub fn shut(&mut self) {
        self.closing = true;
    }

    /// Whether Core is closing.
    #[must_use]
    pub const fn is_shut(&self) -> bool {
        self.closing
    }

    /// How many identities are reserved.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.len()
    }

    fn change(&mut self, node: Id, ticket: Ticket, next: Phase) {
        if let Some((held, phase)) = self.held.get_mut(&node)
            && *held == ticket
        {
            *phase = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Id = Id::from_random([1; 16]);
    const OTHER: Id = Id::from_random([2; 16]);

    /// W 48, W 49, W 51, E2. Whatever the first connection is in the middle of, a second one is refused.
    #[test]
    fn second_connection_of_one_identity_gets_conflict_in_every_phase() {
        let mut table = Reservations::default();
        let ticket = table.reserve(NODE).expect("free");
        assert_eq!(table.reserve(NODE), Err(Refused::Conflict(Phase::Opening)));
        table.publish(NODE, ticket);
        assert_eq!(table.reserve(NODE), Err(Refused::Conflict(Phase::Live)));
        table.close(NODE, ticket);
        assert_eq!(table.reserve(NODE), Err(Refused::Conflict(Phase::Closing)));
        table.release(NODE, ticket);
        assert!(table.reserve(NODE).is_ok());
    }

    /// W 59. One hanging node never stands in the way of another.
    #[test]
    fn other_identities_are_free() {
        let mut table = Reservations::default();
        table.reserve(NODE).expect("free");
        assert!(table.reserve(OTHER).is_ok());
    }

    /// W 54. A late release of an old connection leaves the next one alone.
    #[test]
    fn stale_ticket_changes_nothing() {
        let mut table = Reservations::default();
        let old = table.reserve(NODE).expect("free");
        table.release(NODE, old);
        let new = table.reserve(NODE).expect("free again");
        table.publish(NODE, new);
        table.close(NODE, old);
        table.release(NODE, old);
        assert_eq!(table.phase(NODE), Some(Phase::Live));
    }

    #[test]
    fn closing_core_reserves_nothing_and_keeps_what_is_held() {
        let mut table = Reservations::default();
        table.reserve(NODE).expect("free");
        table.shut();
        assert_eq!(table.reserve(OTHER), Err(Refused::Closing));
        assert_eq!(table.phase(NODE), Some(Phase::Opening));
    }

    #[test]
    fn closing_shows_and_reservations_are_counted() {
        let mut table = Reservations::default();
        assert_eq!((table.count(), table.is_shut()), (0, false));
        let ticket = table.reserve(NODE).expect("free");
        table.reserve(OTHER).expect("free");
        assert_eq!(table.count(), 2);
        table.release(NODE, ticket);
        table.shut();
        assert_eq!((table.count(), table.is_shut()), (1, true));
    }
}
