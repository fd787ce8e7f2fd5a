//! Bodies (deployment §1.0).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as HttpBody, Frame};
use palisade_core::admin::error::Code;
use tokio::time::{Instant, Sleep, sleep};

use super::{ApiError, ApiResult};
use crate::limits::{BODY_WAIT, BODY_WAIT_BYTES};

/// Reads a whole body of at most `limit` bytes, else 413 `request_too_large`; each mebibyte of it within
/// [`BODY_WAIT`], else 408 `request_timeout`.
///
/// The pure parsers of the core take the bytes.
pub async fn read_body(body: Body, limit: usize) -> ApiResult<Bytes> {
    // One that announces too much is not waited for.
    if body.size_hint().lower() > limit as u64 {
        return Err(Code::RequestTooLarge.into());
    }
    let body = Limited::new(Paced::new(body), limit).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| refuse(error.as_ref()))
}

fn refuse(error: &(dyn std::error::Error + 'static)) -> ApiError {
    let code = std::iter::successors(Some(error), |error| error.source()).find_map(|error| {
        let too_large = error.is::<LengthLimitError>().then_some(Code::RequestTooLarge);
        too_large.or_else(|| error.is::<Overdue>().then_some(Code::RequestTimeout))
    });
    code.unwrap_or(Code::InvalidRequest).into()
}

/// A body that did not come in time.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
struct Overdue;

/// A body with a deadline that its progress moves on: a slow link is served, a dripping one is not.
struct Paced {
    body: Body,
    deadline: Pin<Box<Sleep>>,
    /// Bytes since the deadline was set.
    arrived: usize,
}

impl Paced {
    fn new(body: Body) -> Self {
        Self { body, deadline: Box::pin(sleep(BODY_WAIT)), arrived: 0 }
    }

    fn progress(&mut self, bytes: usize) {
        self.arrived += bytes;
        if self.arrived >= BODY_WAIT_BYTES {
            self.arrived = 0;
            self.deadline.as_mut().reset(Instant::now() + BODY_WAIT);
        }
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            ready!(self.deadline.as_mut().poll(cx));
            return Poll::Ready(Some(Err(Overdue.into())));
        };
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.progress(bytes);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }
}
