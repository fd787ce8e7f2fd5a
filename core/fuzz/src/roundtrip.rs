//! What decodes encodes to the same frame, and from then on to the same bytes.

use palisade_core::operation::{Asked, Call, Method};
use palisade_core::outcome::{Failure, judge, respond};
use palisade_core::units::Id;
use palisade_core::wire::frame::Response;
use palisade_core::wire::payload::Reference;
use palisade_core::wire::{Frame, IntoOwned, decode, encode};

use super::values::id;

/// Decode, encode, decode, encode.
pub fn run(input: &[u8]) {
    let Ok(frame) = decode(input) else { return };
    let Ok(written) = encode(&frame) else {
        // What may be received and never be sent: `TokenUsage` is stripped by its sender, and a frame of just the
        // allowed length may be longer in the form that is written.
        assert!(has_token_usage(&frame) || input.len() > 1_024, "decodes and does not encode: {frame:?}");
        return;
    };
    let again = decode(&written).expect("what was encoded decodes");
    assert_eq!(again, frame);
    assert_eq!(encode(&again).as_deref(), Ok(&written[..]));
    match frame {
        Frame::Request(request) => accept(*request, &written),
        Frame::Response(response) => weigh(&response),
        Frame::Hello { .. }
        | Frame::Welcome(_)
        | Frame::Heartbeat { .. }
        | Frame::HeartbeatAck(_)
        | Frame::Retention { .. }
        | Frame::RetentionAck { .. } => {}
    }
}

fn has_token_usage(frame: &Frame<'_>) -> bool {
    let Frame::Request(request) = frame else { return false };
    request.observation.as_ref().is_some_and(|observation| observation.token_usage_present)
}

/// A request that is accepted is the request that its call makes again.
fn accept(request: palisade_core::wire::frame::Request<'_>, written: &[u8]) {
    let fencing = palisade_core::operation::Fencing {
        sequence: request.sequence,
        owner_epoch: request.owner_epoch,
        connection_id: request.connection_id,
    };
    let Ok(call) = Call::accept(request) else { return };
    assert!(palisade_core::operation::budget(call.timeout_ms).is_some());
    let owned = call.clone().into_owned();
    assert_eq!(owned, call);
    let written_again =
        encode(&Frame::Request(Box::new(owned.into_request(fencing)))).expect("an accepted call encodes");
    assert_eq!(written_again, written);
}

/// Whatever a node answers, every caller is told something, and an error is never a success (promise 12).
fn weigh(response: &Response<'_>) {
    let claimed = |text: Option<&str>, other| text.and_then(|text| Id::parse(text).ok()).unwrap_or(other);
    let info = response.info.as_ref().map(|info| &info.reference);
    let reference = Reference {
        tenant: claimed(info.map(|raw| &*raw.tenant_id), id(1, 1)),
        environment: claimed(info.map(|raw| &*raw.environment_id), id(1, 2)),
        allocation: claimed(info.map(|raw| &*raw.allocation_id), id(1, 3)),
    };
    for method in Method::ALL {
        let compute = response.compute.as_ref().or(response.state.as_ref().map(|state| &state.compute));
        let target = compute.filter(|_| method == Method::Resume).map(|compute| compute.clone().into_owned());
        let asked = Asked { id: id(6, 1), method, reference, target };
        let judged = judge(&asked, response.clone());
        assert!(response.error_code.is_none() || judged.is_err(), "{method}: an error is a success");
        let known = response.error_code.as_deref().is_none_or(|code| CODES.contains(&code));
        if let Err(failed) = judged.as_ref().map_err(|failed| &failed.failure)
            && !known
        {
            assert!(is_unknown(failed), "{method}: an unknown error is {failed:?}");
        }
        let again = respond(id(6, 2), &asked, judged);
        let Ok(Frame::Response(again)) = decode(&again) else { panic!("{method}: an answer that is no response") };
        assert_eq!(again.id, asked.id.to_string());
    }
}

const CODES: [&str; 10] = [
    "unsupported",
    "observation_unavailable",
    "runtime_not_running",
    "invalid",
    "ownership",
    "exists",
    "not_found",
    "command_unconfirmed",
    "checkpoint_unusable",
    "unconfirmed",
];

const fn is_unknown(failure: &Failure) -> bool {
    match failure {
        Failure::Unconfirmed | Failure::CommandUnconfirmed | Failure::ObservationUnavailable => true,
        Failure::Unsupported { .. }
        | Failure::RuntimeNotRunning
        | Failure::Invalid
        | Failure::Ownership
        | Failure::Exists
        | Failure::NotFound
        | Failure::CheckpointUnusable => false,
    }
}
