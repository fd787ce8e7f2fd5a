//! A peer made of bytes.

use std::time::Duration;

use palisade_socket::{Closed, Incoming, Reader, Socket};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex};

pub(crate) const CONTINUATION: u8 = 0x0;
pub(crate) const TEXT: u8 = 0x1;
pub(crate) const BINARY: u8 = 0x2;
pub(crate) const CLOSE: u8 = 0x8;
pub(crate) const PING: u8 = 0x9;
pub(crate) const PONG: u8 = 0xa;
pub(crate) const LAST: u8 = 0x80;

/// The side of the shell that is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Core,
    Node,
}

pub(crate) const ROLES: [Role; 2] = [Role::Core, Role::Node];

/// How a length is written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Shortest,
    Two,
    Eight,
    /// Eight bytes that say something else than is sent.
    Declared(u64),
}

/// One frame that the peer sends.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) first: u8,
    pub(crate) payload: Vec<u8>,
    pub(crate) form: Form,
    /// Masked although it must not be, or the other way round.
    pub(crate) wrong_mask: bool,
}

pub(crate) fn frame(first: u8, payload: impl AsRef<[u8]>) -> Frame {
    Frame { first, payload: payload.as_ref().to_vec(), form: Form::Shortest, wrong_mask: false }
}

/// A Close with this code and reason.
pub(crate) fn close(code: u16, reason: impl AsRef<[u8]>) -> Frame {
    frame(LAST | CLOSE, [&code.to_be_bytes(), reason.as_ref()].concat())
}

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

impl Frame {
    pub(crate) fn form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    pub(crate) fn wrong_mask(self) -> Self {
        Self { wrong_mask: true, ..self }
    }

    /// The bytes that a peer of the shell in this role puts on the wire.
    pub(crate) fn bytes(&self, role: Role) -> Vec<u8> {
        let masked = (role == Role::Core) != self.wrong_mask;
        let mask_bit = if masked { 0x80 } else { 0 };
        let mut bytes = vec![self.first];
        match (self.form, self.payload.len()) {
            (Form::Shortest, short @ 0..126) => bytes.push(mask_bit | u8::try_from(short).unwrap()),
            (Form::Two, length) | (Form::Shortest, length @ 126..65_536) => {
                bytes.push(mask_bit | 0x7e);
                bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
            }
            (Form::Eight | Form::Shortest, length) => {
                bytes.push(mask_bit | 0x7f);
                bytes.extend((length as u64).to_be_bytes());
            }
            (Form::Declared(length), _) => {
                bytes.push(mask_bit | 0x7f);
                bytes.extend(length.to_be_bytes());
            }
        }
        if masked {
            bytes.extend(MASK);
            bytes.extend(self.payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        } else {
            bytes.extend(&self.payload);
        }
        bytes
    }
}

/// A frame that the shell sent, unmasked; checks that it is masked as its role must.
pub(crate) async fn receive<S: AsyncRead + Unpin>(peer: &mut S, role: Role) -> Option<(u8, Vec<u8>)> {
    let first = peer.read_u8().await.ok()?;
    let second = peer.read_u8().await.ok()?;
    assert_eq!(second & 0x80 != 0, role == Role::Node, "a client masks, a server does not");
    let length = match second & 0x7f {
        126 => u64::from(peer.read_u16().await.ok()?),
        127 => peer.read_u64().await.ok()?,
        short => u64::from(short),
    };
    let mut mask = [0; 4];
    if role == Role::Node {
        peer.read_exact(&mut mask).await.ok()?;
    }
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    peer.read_exact(&mut payload).await.ok()?;
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Some((first, payload))
}

/// Everything that the shell sends until it closes the stream.
pub(crate) async fn receive_all<S: AsyncRead + Unpin>(peer: &mut S, role: Role) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(frame) = receive(peer, role).await {
        frames.push(frame);
    }
    frames
}

/// A shell after its upgrade, and the peer's end of the stream.
pub(crate) async fn connected(role: Role, buffer: usize) -> (Socket<DuplexStream>, DuplexStream) {
    let (ours, mut peer) = duplex(buffer);
    let socket = match role {
        Role::Core => Socket::accepted(ours, &[]),
        Role::Node => dialled(ours, &mut peer).await,
    };
    (socket, peer)
}

/// The shell in the node's role over any stream, with the other end at hand.
pub(crate) async fn dialled<S, P>(ours: S, peer: &mut P) -> Socket<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    P: AsyncRead + AsyncWrite + Unpin,
{
    let connecting = tokio::spawn(Socket::client(ours, request()));
    let key = header(&head(peer).await, "sec-websocket-key").unwrap();
    let accept = palisade_socket::accept_key(key.as_bytes());
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    peer.write_all(answer.as_bytes()).await.unwrap();
    connecting.await.unwrap().unwrap()
}

pub(crate) fn request() -> hyper::Request<()> {
    hyper::Request::get("/connect").header("host", "core.example").body(()).unwrap()
}

/// One HTTP head, byte by byte, so that nothing behind it is taken.
pub(crate) async fn head(peer: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(peer.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// A header of a head.
pub(crate) fn header(head: &str, wanted: &str) -> Option<String> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.to_owned())
}

/// What a shell reported, without the fragments, whose number depends on how the bytes came.
pub(crate) async fn reports<S: AsyncRead + AsyncWrite + Unpin>(reader: &mut Reader<S>) -> (Vec<Incoming>, Closed) {
    let mut reports = Vec::new();
    loop {
        match reader.next().await {
            Incoming::Fragment => {}
            Incoming::Closed(reason) => return (reports, reason),
            report => reports.push(report),
        }
    }
}

/// Long enough for anything that is not stuck; the clock of these tests is paused.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
