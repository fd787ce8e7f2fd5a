//! The node's identity, and what its Core says.

use palisade_node::doctor::{Asked, Examination};
use palisade_node::{EnrollmentError, Status, status};

use crate::findings::Finding;

/// Difference of the clocks from which on times in answers and logs do not match any more, in seconds.
const SKEW_MAX_SECONDS: u64 = 5;

pub(super) async fn look(examination: &Examination) -> Vec<Finding> {
    let status = match status(&examination.state()) {
        Ok(status) => status,
        Err(error) => {
            let next =
                "register the node with `palisade node register`; a state folder that is there is never made anew";
            return vec![Finding::problem("identity", error.to_string(), next)];
        }
    };
    let mut findings = vec![identity(&status)];
    match examination.core().await {
        Ok(asked) => {
            findings.extend([reached(&asked), connection(&status, &asked)]);
            findings.extend(clock(&asked));
        }
        Err(error) => findings.push(Finding::problem("core", error.to_string(), "see there")),
    }
    findings
}

fn identity(status: &Status) -> Finding {
    const CHECK: &str = "identity";
    let found = format!("node {}, at {}", status.identity.node_id, status.core_url);
    match (status.enrolled, status.in_use) {
        (false, _) => {
            let next = "run `palisade node register` again with the same state folder and a new enrollment token";
            Finding::problem(CHECK, format!("{found}: core has not confirmed it yet"), next)
        }
        (true, true) => Finding::ok(CHECK, format!("{found}: in use by a node that runs on this host")),
        (true, false) => {
            let next = "start it with `palisade node run`, or with its service";
            Finding::warning(CHECK, format!("{found}: no node runs on this host"), next)
        }
    }
}

/// Who answered the node's own question.
fn reached(asked: &Asked) -> Finding {
    const CHECK: &str = "core";
    let core = &asked.core_url;
    let Err(error) = &asked.connected else {
        return Finding::ok(CHECK, format!("{core} knows this node"));
    };
    Finding::problem(CHECK, format!("{core}: {error}"), advice(error))
}

fn advice(error: &EnrollmentError) -> &'static str {
    match error {
        EnrollmentError::Unauthorized { .. } => {
            "core itself answered: the node was removed or core was reset; empty the root, and register it anew with a new \
             token"
        }
        EnrollmentError::Refused { .. } => "core itself answered: `palisade core doctor` on its host says more",
        EnrollmentError::Between(_) | EnrollmentError::Malformed(_) => {
            "that was not core: look at the proxy, the load balancer and the name that lead to its address"
        }
        EnrollmentError::Unreachable(_) | EnrollmentError::Unconfirmed(_) | EnrollmentError::Client(_) => {
            "check the name, the network, the proxy variables and the certificate; `curl -i ADDRESS/healthz` asks the same way"
        }
        EnrollmentError::Foreign(_) | EnrollmentError::Capacity => {
            "this state folder belongs to another node or another core: bring back the right one"
        }
        EnrollmentError::State(_) => "make the state folder readable for this user",
    }
}

/// Core lets one connection of a node live. Only trying a second one would show a conflict, and would disturb the first.
fn connection(status: &Status, asked: &Asked) -> Finding {
    const CHECK: &str = "connection";
    let Ok(Some(connected)) = asked.connected else {
        let next = "clear up what keeps core from answering first";
        return Finding::warning(CHECK, "core did not say whether the node is connected", next);
    };
    match (connected, status.in_use) {
        (true, true) => Finding::ok(CHECK, "core has a connection of this node, and it runs on this host"),
        (false, false) => Finding::ok(CHECK, "core has none of this node, and it does not run on this host"),
        (false, true) => {
            let next = "its log says why: a conflict (409) means that its identity is in use elsewhere, from a copied state \
                        folder";
            Finding::problem(CHECK, "a node runs on this host, and core has no connection of it", next)
        }
        (true, false) => {
            let next = "if it was stopped less than a minute ago, ask again; else its state folder was copied to another \
                        host: stop that node, and register it there with a token of its own";
            Finding::problem(CHECK, "core has a connection of this node, and it does not run on this host", next)
        }
    }
}

/// Nothing that is decided compares the two clocks; whoever reads logs beside answers does.
fn clock(asked: &Asked) -> Option<Finding> {
    const CHECK: &str = "clock";
    // The clock of something between us says nothing.
    let ahead = match &asked.connected {
        Ok(_) | Err(EnrollmentError::Unauthorized { .. } | EnrollmentError::Refused { .. }) => {
            asked.clock_ahead_seconds?
        }
        Err(_) => return None,
    };
    let side = if ahead < 0 { "behind" } else { "ahead of" };
    let found = format!("this host's clock is {} s {side} core's", ahead.unsigned_abs());
    if ahead.unsigned_abs() <= SKEW_MAX_SECONDS {
        return Some(Finding::ok(CHECK, found));
    }
    let next =
        "let both hosts keep their time with NTP: logs and answers tell different times, and certificates seem expired";
    Some(Finding::warning(CHECK, found, next))
}
