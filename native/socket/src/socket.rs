//! A connected socket, before it is split.

use std::sync::Arc;

use palisade_core::limits::{CALL_FRAME_MAX_BYTES, FRAGMENT_MAX_BYTES};
use tokio::io::{AsyncRead, AsyncWrite};
use tungstenite::protocol::{Role, WebSocketConfig};

use crate::limits::{READ_BUFFER_BYTES, WRITE_BUFFER_SPARE_BYTES};
use crate::reader::Reader;
use crate::shared::Shared;
use crate::stream::Stream;
use crate::upgrade::{self, UpgradeError};
use crate::writer::Writer;

/// A WebSocket over any stream, after its upgrade.
pub struct Socket<S> {
    stream: Stream<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Socket<S> {
    /// Upgrades a connected stream as a client. `request` is a `GET` whose address is the path and query, with
    /// `Host` and `Authorization`; the upgrade headers are added here.
    ///
    /// # Errors
    /// What the other side answered instead, whole; or what became of the stream.
    pub async fn client(stream: S, request: hyper::Request<()>) -> Result<Self, UpgradeError> {
        let (stream, already_read) = upgrade::client(stream, request).await?;
        Ok(Self::after_upgrade(stream, &already_read, Role::Client))
    }

    /// Takes over a stream on which Core has already answered `101`. `already_read` is what arrived behind the request.
    #[must_use]
    pub fn accepted(stream: S, already_read: &[u8]) -> Self {
        Self::after_upgrade(stream, already_read, Role::Server)
    }

    /// The two halves; the connection ends with the first of them.
    #[must_use]
    pub fn split(self) -> (Reader<S>, Writer<S>) {
        let shared = Arc::new(Shared::new(self.stream));
        (Reader::new(Arc::clone(&shared)), Writer::new(shared))
    }

    fn after_upgrade(stream: S, already_read: &[u8], role: Role) -> Self {
        let stream = Stream::new(stream, already_read, role, configuration());
        Self { stream }
    }
}

/// Every size explicit. Nothing waits in the write buffer but the fragment being written and the pongs between two.
fn configuration() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(FRAGMENT_MAX_BYTES + WRITE_BUFFER_SPARE_BYTES)
        .max_message_size(Some(CALL_FRAME_MAX_BYTES))
        .max_frame_size(Some(CALL_FRAME_MAX_BYTES))
        .accept_unmasked_frames(false)
}
