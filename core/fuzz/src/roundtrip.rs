//! What decodes encodes to the same frame, and from then on to the same bytes.

use palisade_core::operation::Call;
use palisade_core::wire::{Frame, decode, encode};

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
    if let Frame::Request(request) = frame {
        accept(*request, &written);
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
