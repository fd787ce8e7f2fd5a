//! Steps of Core's half of a connection that is live.

use std::hint::black_box;

use palisade_core::operation::{Call, Fencing, Operation};
use palisade_core::session::hub::{Action, Callback, Connection, Reply, Submission, Write};
use palisade_core::units::{Generation, Id};
use palisade_core::wire::frame::Frame;
use palisade_core::wire::payload::{Identity, Reference};
use palisade_core::wire::{decode_text, encode};

use super::{NOW, connection, deployment, epoch, generation, health, identity, named, observed, two};
use crate::pair::Work;
use crate::sample;

fn live() -> Connection {
    let mut machine = Connection::new(NOW, identity(), connection(), epoch());
    machine.handle_frame(NOW, Frame::Hello { identity: identity(), health: health() });
    drive(&mut machine, &mut Records::new(), None);
    machine
}

/// What storage answers, made beforehand.
struct Records {
    node: Option<Box<Identity<'static>>>,
    kept: Option<Vec<Generation>>,
}

impl Records {
    fn new() -> Self {
        Self { node: Some(Box::new(identity())), kept: Some(observed()) }
    }

    fn reply(&mut self, callback: &Callback) -> Reply {
        match callback {
            Callback::Connect | Callback::Disconnect => Reply::Done,
            Callback::Record(_) => Reply::Recorded(self.kept.take().expect("one report is recorded")),
            Callback::Deployment => Reply::Deployment(deployment()),
            Callback::Authenticate => Reply::Authenticated(self.node.take().expect("one heartbeat is authenticated")),
            Callback::Epoch => Reply::Epoch(epoch()),
            Callback::Retain(_) => unreachable!("nothing is asked"),
        }
    }
}

/// Answers every callback and writes every frame at once; encodes the frames of the machine and of `call`.
fn drive(machine: &mut Connection, records: &mut Records, mut call: Option<Call<'static>>) {
    while let Some(action) = machine.poll_action() {
        match action {
            Action::Call(callback) => machine.handle_callback(NOW, records.reply(&callback)),
            Action::Write(write) => {
                let frame = match write {
                    Write::Welcome(announcement) => Frame::Welcome(announcement),
                    Write::HeartbeatAck(announcement) => Frame::HeartbeatAck(announcement),
                    Write::RetentionAck { .. } => unreachable!("nothing is asked"),
                    Write::Request { sequence, timeout_ms, .. } => {
                        let fencing = Fencing { sequence, owner_epoch: epoch(), connection_id: connection() };
                        let call = Call { timeout_ms, ..call.take().expect("one call is submitted") };
                        Frame::Request(Box::new(call.into_request(fencing)))
                    }
                };
                black_box(encode(&frame).expect("a valid frame"));
                machine.handle_written(NOW, true);
            }
            Action::Publish => {}
            Action::CancelCallback | Action::Abandon { .. } | Action::Close(_) | Action::Finish => {
                unreachable!("the connection stays, but: {action:?}")
            }
        }
    }
}

pub(super) fn heartbeat() -> Work {
    let (mut machine, text) = (live(), sample::heartbeat());
    two([Records::new(), Records::new()], move |mut records| {
        machine.handle_frame(NOW, decode_text(&text).expect("a valid frame"));
        drive(&mut machine, &mut records, None);
    })
}

fn ids() -> [Id; 2] {
    [1, 2].map(|byte| Id::from_random([byte; 16]))
}

fn call(id: Id) -> Call<'static> {
    let [tenant, environment, allocation] = [3, 4, 5].map(|byte| Id::from_random([byte; 16]));
    Call {
        id,
        deployment_generation: generation(3),
        reference: Reference { tenant, environment, allocation },
        timeout_ms: 30_000,
        operation: Operation::GetInfo,
    }
}

fn submit(machine: &mut Connection, records: &mut Records, call: Call<'static>) {
    let deadline = NOW.after(call.timeout_ms);
    let submission = Submission { id: call.id, generation: call.deployment_generation, needs_ready: false, deadline };
    machine.handle_request(NOW, submission);
    drive(machine, records, Some(call));
}

pub(super) fn request() -> Work {
    let mut machine = live();
    two(ids().map(|id| (Records::new(), call(id))), move |(mut records, call)| submit(&mut machine, &mut records, call))
}

pub(super) fn response() -> Work {
    let mut machine = live();
    for id in ids() {
        submit(&mut machine, &mut Records::new(), call(id));
    }
    two(ids().map(|id| named(&sample::small_response(), id)), move |text| {
        let delivery = machine.handle_frame(NOW, decode_text(&text).expect("a valid frame"));
        black_box(delivery.expect("somebody waits for it"));
    })
}
