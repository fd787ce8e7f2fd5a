//! A timer for whoever drives a machine.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// Rings at the time that a machine asks for, which moves on with almost every input.
///
/// Moving a timer of the runtime costs more than the input itself. A later time therefore leaves the timer as it is: it
/// runs out early once, and is set anew then.
#[derive(Debug, Default)]
pub struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Waits until `at`; for ever without one. Cancel safe.
    pub async fn reached(&mut self, at: Option<Instant>) {
        poll_fn(|cx| at.map_or(Poll::Pending, |at| self.poll_reached(cx, at))).await;
    }

    fn poll_reached(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= at {
                return Poll::Ready(());
            }
            timer.as_mut().reset(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rings_at_the_time_asked_for_last() {
        let start = Instant::now();
        let after = |seconds| Some(start + Duration::from_secs(seconds));
        let mut alarm = Alarm::default();
        for (first, then) in [(10, 35), (60, 40)] {
            let cut_short = tokio::time::timeout(Duration::from_secs(1), alarm.reached(after(first))).await;
            assert!(cut_short.is_err());
            alarm.reached(after(then)).await;
            assert_eq!(start.elapsed(), Duration::from_secs(then));
        }
        alarm.reached(after(1)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(40), "what is past rings at once");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_time_it_never_rings() {
        let mut alarm = Alarm::default();
        tokio::time::timeout(Duration::from_secs(1 << 20), alarm.reached(None)).await.unwrap_err();
    }
}
