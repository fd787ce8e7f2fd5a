//! When a node dials again, and when it never does (wire §4.4, §4.7).
//!
//! - Never is anything but Core's own 401 final (`only_cores_own_401_is_final`,
//!   `a_node_retries_a_conflict_for_ever_with_jitter`).
//! - Never does a delay lose its random half, also at the cap (`every_delay_is_within_half_and_full`,
//!   `a_thousand_nodes_do_not_return_together`).

use crate::limits::{RECONNECT_MAX_MS, RECONNECT_MIN_MS, RECONNECT_RESET_MS};

/// Delays between attempts: 1, 2, 4, 8, 16, 30, 30 … seconds, each halved and topped up at random.
///
/// The random part is applied after the cap, so that nodes which lost Core together never return together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Backoff {
    full_ms: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { full_ms: RECONNECT_MIN_MS }
    }
}

impl Backoff {
    /// The wait after an attempt that lasted `lived_ms` from the start of its dial.
    ///
    /// `random` is uniform over all of `u64`; the delay is uniform in `[half, full]`. What Core asked for in
    /// `Retry-After`, at most [`RECONNECT_MAX_MS`] of it, is waited for in any case, and topped up by at most its half.
    pub fn next_delay_ms(&mut self, lived_ms: u64, retry_after_ms: Option<u64>, random: u64) -> u64 {
        if lived_ms >= RECONNECT_RESET_MS {
            self.full_ms = RECONNECT_MIN_MS;
        }
        let asked = retry_after_ms.unwrap_or(0).min(RECONNECT_MAX_MS);
        let least = asked.max(self.full_ms / 2);
        let most = self.full_ms.max(asked + asked / 2);
        self.full_ms = self.full_ms.saturating_mul(2).min(RECONNECT_MAX_MS);
        least + random % (most - least + 1)
    }
}

/// What an HTTP answer in place of an upgrade means for the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Core itself rejected the credential: the node ends with exit status 78.
    Credential,
    /// Core answered something else; 409 included, retried for ever.
    Core,
    /// Not Core's words: something between the node and Core answered. Retried.
    Between,
}

impl Refused {
    /// Judges a status and its body. 401 is believed from Core alone, recognised by its error envelope (decision 36).
    #[must_use]
    pub fn judge(status: u16, body: &[u8]) -> Self {
        match (status, is_envelope(body)) {
            (401, true) => Self::Credential,
            (_, true) => Self::Core,
            (_, false) => Self::Between,
        }
    }
}

/// Whether a body is `{"error":{"message","type","code","param"}}` (wire §9).
fn is_envelope(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Envelope {
        #[serde(rename = "error")]
        _error: Detail,
    }
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Detail {
        #[serde(rename = "message")]
        _message: String,
        #[serde(rename = "type")]
        _kind: String,
        #[serde(rename = "code")]
        _code: Option<String>,
        #[serde(rename = "param")]
        _param: Option<String>,
    }
    serde_json::from_slice::<Envelope>(body).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ENVELOPE: &[u8] =
        br#"{"error":{"message":"no","type":"invalid_request_error","code":"invalid_node_credential","param":null}}"#;

    /// E7: the random part comes after the cap, so that the longest delay spreads as well.
    #[test]
    fn delays_double_to_the_cap_and_keep_their_random_half() {
        let fulls = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000];
        let (mut low, mut high) = (Backoff::default(), Backoff::default());
        for full in fulls {
            assert_eq!(low.next_delay_ms(0, None, 0), full / 2);
            assert_eq!(high.next_delay_ms(0, None, full / 2), full);
        }
    }

    #[test]
    fn an_attempt_of_thirty_seconds_resets_the_delay() {
        let mut backoff = Backoff::default();
        for _ in 0..6 {
            backoff.next_delay_ms(29_999, None, 0);
        }
        assert_eq!(backoff.next_delay_ms(29_999, None, 0), 15_000);
        assert_eq!(backoff.next_delay_ms(30_000, None, 0), 500);
        assert_eq!(backoff.next_delay_ms(0, None, 0), 1_000);
    }

    /// E7: nobody is back before `Retry-After`, up to the longest delay, and nobody all at once after it.
    #[test]
    fn retry_after_is_waited_for_up_to_the_cap() {
        for (asked, least, most) in [
            (400, 500, 1_000),
            (700, 700, 1_050),
            (20_000, 20_000, 30_000),
            (30_000, 30_000, 45_000),
            (3_600_000, 30_000, 45_000),
        ] {
            let after = |random| Backoff::default().next_delay_ms(0, Some(asked), random);
            assert_eq!((after(0), after(most - least)), (least, most));
            assert_eq!(after(most - least + 1), least, "nothing lies beyond {most}");
        }
    }

    /// E7: a thousand nodes that lost Core in the same instant spread: the fullest 100 ms hold less than three times the mean.
    #[test]
    fn a_thousand_nodes_do_not_return_together() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut buckets = [0_u32; 150];
        for _ in 0..1_000 {
            let mut backoff = Backoff::default();
            let mut delay = 0;
            for _ in 0..6 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                delay = backoff.next_delay_ms(0, None, state >> 11);
            }
            buckets[usize::try_from((delay - 15_000) / 100).unwrap().min(149)] += 1;
        }
        let peak = f64::from(*buckets.iter().max().unwrap());
        assert!(peak / (1_000.0 / 150.0) < 3.0, "peak of {peak} in 100 ms");
    }

    /// E1: a conflict is retried for ever; decision 36: only Core's own 401 is final.
    #[test]
    fn only_cores_own_401_is_final() {
        assert_eq!(Refused::judge(401, ENVELOPE), Refused::Credential);
        assert_eq!(Refused::judge(409, ENVELOPE), Refused::Core);
        assert_eq!(Refused::judge(503, ENVELOPE), Refused::Core);
        for body in [&b"<html>login</html>"[..], b"", b"{\"error\":\"denied\"}", b"{\"message\":\"no\"}"] {
            assert_eq!(Refused::judge(401, body), Refused::Between);
            assert_eq!(Refused::judge(502, body), Refused::Between);
        }
    }

    proptest! {
        #[test]
        fn every_delay_is_within_half_and_full(randoms in prop::collection::vec(any::<u64>(), 1..20)) {
            let mut backoff = Backoff::default();
            let mut full = 1_000;
            for random in randoms {
                let delay = backoff.next_delay_ms(0, None, random);
                prop_assert!((full / 2..=full).contains(&delay));
                full = (full * 2).min(30_000);
            }
        }
    }
}
