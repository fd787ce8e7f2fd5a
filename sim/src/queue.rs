//! What happens next: by time, and in the order of arrival at one time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::Time;

/// Future events. The heap moves only their times and numbers about; events are large.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Reverse<(Time, u64, usize)>>,
    events: Vec<Option<E>>,
    free: Vec<usize>,
    number: u64,
}

impl<E> Queue<E> {
    pub(crate) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), number: 0 }
    }

    pub(crate) fn push(&mut self, at: Time, event: E) {
        self.number += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[slot] = Some(event);
        self.heap.push(Reverse((at, self.number, slot)));
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, E)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        self.events[slot].take().map(|event| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_their_arrival() {
        let mut queue = Queue::new();
        for (at, event) in [(5, "c"), (3, "a"), (5, "d"), (4, "b")] {
            queue.push(at, event);
        }
        assert_eq!(queue.pop(), Some((3, "a")));
        queue.push(5, "e");
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(rest, ["b", "c", "d", "e"]);
    }
}
