//! The same bytes without any rule: tokio-tungstenite as it comes.

use futures_util::{SinkExt as _, StreamExt as _};
use palisade_core::operation::{Call, Fencing, Operation};
use palisade_core::units::{Generation, Id, OwnerEpoch, Sequence};
use palisade_core::wire;
use palisade_core::wire::frame::{Frame, Response};
use palisade_core::wire::payload::Info;
use palisade_provider::flattened;
use palisade_provider::testing::reference;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{accept_async, client_async};

use crate::ROUND_TRIPS;
use crate::part::{orders, say};

/// Answers each message with the other one, without looking at it.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(&listener.local_addr()?.to_string())?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    let mut socket = accept_async(stream).await?;
    let answer = response()?;
    while let Some(message) = socket.next().await {
        if message?.is_text() {
            socket.send(Message::Text(answer.clone())).await?;
        }
    }
    Ok(())
}

pub(crate) async fn call(address: String) -> anyhow::Result<()> {
    let stream = TcpStream::connect(&address).await?;
    stream.set_nodelay(true)?;
    let (mut socket, _) = client_async(format!("ws://{address}/"), stream).await?;
    let question = request()?;
    say("connected")?;
    let mut orders = orders();
    while orders.next_line().await?.is_some() {
        for _ in 0..ROUND_TRIPS {
            socket.send(Message::Text(question.clone())).await?;
            socket.next().await.transpose()?;
        }
        say("done")?;
    }
    Ok(socket.close(None).await?)
}

/// What Core sends for `info`.
fn request() -> anyhow::Result<Utf8Bytes> {
    let call = Call {
        id: Id::from_random([3; 16]),
        deployment_generation: Generation::FIRST,
        reference: reference(7),
        timeout_ms: 60_000,
        operation: Operation::GetInfo,
    };
    let fencing = Fencing {
        sequence: Sequence::new(4_000).expect("a positive sequence"),
        owner_epoch: OwnerEpoch::FIRST,
        connection_id: Id::from_random([4; 16]),
    };
    text(&Frame::Request(Box::new(call.into_request(fencing))))
}

/// What a node answers.
fn response() -> anyhow::Result<Utf8Bytes> {
    let info = Info {
        reference: flattened(reference(7)),
        provider_id: "instant".into(),
        state: "running".into(),
        bootstrap_complete: true,
        create_settled: false,
    };
    let response = Response {
        id: Id::from_random([3; 16]).to_string().into(),
        connection_id: Some(Id::from_random([4; 16])),
        error_code: None,
        unsupported: None,
        info: Some(info),
        compute: None,
        state: None,
        command: None,
        sample: None,
        restored: None,
    };
    text(&Frame::Response(Box::new(response)))
}

fn text(frame: &Frame<'_>) -> anyhow::Result<Utf8Bytes> {
    Ok(String::from_utf8(wire::encode(frame)?)?.into())
}
