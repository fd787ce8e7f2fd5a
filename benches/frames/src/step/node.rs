//! Steps of a node that is live on its first connection, with eight generations.

use std::hint::black_box;

use palisade_core::generation::{Found, Table};
use palisade_core::operation::{Declaration, Method, Support};
use palisade_core::outcome::Answer;
use palisade_core::session::lanes::Ticket;
use palisade_core::session::node::{Action, Node};
use palisade_core::units::Id;
use palisade_core::wire::frame::{Announcement, Frame};
use palisade_core::wire::payload::GenerationReference;
use palisade_core::wire::{IntoOwned as _, decode_text, encode};

use super::{NOW, OBSERVED, connection, deployment, digest, epoch, generation, health, identity, named, two};
use crate::pair::Work;
use crate::sample;
use palisade_core::limits::HEARTBEAT_INTERVAL_MS;

const RANDOM: [u8; 16] = [7; 16];

fn live() -> Node {
    let found = OBSERVED.map(|number| {
        let declaration = Declaration::new(Method::ALL.iter().map(|method| (*method, Support::Supported)));
        let reference = GenerationReference { generation: generation(number), specification_digest: digest() };
        (reference, Found::Provider(declaration.expect("every method is declared")))
    });
    let mut node = Node::new(identity(), Some(epoch()), Table::new(found));
    node.handle_opened(NOW);
    node.handle_health(NOW, health(), RANDOM);
    node.handle_message(NOW, &text(&Frame::Welcome(announcement())));
    assert!(node.live().is_some(), "the node is live");
    drain(&mut node);
    node
}

fn announcement() -> Announcement {
    Announcement { connection_id: connection(), owner_epoch: epoch(), deployment: deployment() }
}

fn text(frame: &Frame<'_>) -> String {
    String::from_utf8(encode(frame).expect("a valid frame")).expect("JSON is UTF-8")
}

fn drain(node: &mut Node) {
    while let Some(action) = node.poll_action() {
        black_box(action);
    }
}

/// Two small requests as they arrive.
fn requests() -> [String; 2] {
    [1, 2].map(|sequence| {
        let text = named(&sample::small_request(), Id::from_random([sequence; 16]));
        text.replace(r#""sequence":1"#, &format!(r#""sequence":{sequence}"#))
    })
}

pub(super) fn request() -> Work {
    let mut node = live();
    two(requests(), move |text| {
        node.handle_message(NOW, &text);
        drain(&mut node);
    })
}

pub(super) fn result() -> Work {
    let mut node = live();
    let tickets = requests().map(|text| {
        let text = text.replace("41f2d3c4", if text.contains(r#""sequence":1"#) { "41f2d3c4" } else { "42f2d3c4" });
        node.handle_message(NOW, &text);
        executing(&mut node)
    });
    let Ok(Frame::Response(response)) = decode_text(sample::small_response().leak()) else {
        unreachable!("the sample is a response")
    };
    let info = response.into_owned().info.expect("the sample answers an info request");
    two(tickets.map(|ticket| (ticket, info.clone())), move |(ticket, info)| {
        node.handle_result(NOW, ticket, Ok(Answer::Info(info)));
        drain(&mut node);
    })
}

fn executing(node: &mut Node) -> Ticket {
    std::iter::from_fn(|| node.poll_action())
        .find_map(|action| match action {
            Action::Execute { ticket, .. } => Some(ticket),
            Action::MeasureHealth
            | Action::Send(_)
            | Action::StoreEpoch(_)
            | Action::Task(_)
            | Action::Remove(_)
            | Action::CancelRemoval(_)
            | Action::Close(_) => None,
        })
        .expect("the request executes")
}

pub(super) fn measurement() -> Work {
    let mut node = live();
    let due = |beats: u64| NOW.after(beats * HEARTBEAT_INTERVAL_MS);
    two([(due(1), health()), (due(2), health())], move |(now, health)| {
        node.handle_timeout(now);
        node.handle_health(now, health, RANDOM);
        drain(&mut node);
    })
}

pub(super) fn acknowledgement() -> Work {
    let mut node = live();
    let text = text(&Frame::HeartbeatAck(announcement()));
    two([NOW, NOW], move |now| {
        node.handle_message(now, &text);
        drain(&mut node);
    })
}
