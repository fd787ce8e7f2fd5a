//! What a node's connections need of the host around them.

use std::pin::Pin;
use std::sync::Arc;

use palisade_core::units::OwnerEpoch;
use palisade_core::wire::payload::{Diagnostic, GenerationReference, Health};
use palisade_provider::Provider;
use palisade_socket::Socket;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::dial::DialError;

/// How a node's connections reach the rest of the host. A simulation has its own.
pub trait Host: Send + 'static {
    /// What a dial gives.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// One attempt to reach Core.
    fn dial(&self) -> Dial<Self::Stream>;

    /// A sampler for a new connection.
    fn sampler(&self) -> Box<Sampler>;

    /// Stores an epoch durably; says whether it is.
    fn store_epoch(&self, epoch: OwnerEpoch) -> Work<bool>;

    /// Uniform over all of `u64`: what keeps nodes from doing the same at the same time.
    fn random(&self) -> u64;
}

/// What brings generations to this host and takes them away, beside the connection.
pub trait Generations: Send + 'static {
    /// Prepares or repairs a generation, and constructs its provider; ends soon after `cancel`.
    ///
    /// # Errors
    /// The class that Core may know.
    fn prepare(
        &self,
        reference: GenerationReference,
        cancel: CancellationToken,
    ) -> Work<Result<Arc<dyn Provider>, Diagnostic>>;

    /// Takes a generation from this host; says whether nothing of it is left to do. Ends soon after `cancel`.
    fn collect(&self, reference: GenerationReference, cancel: CancellationToken) -> Work<bool>;
}

/// Something of the host under way.
pub type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A dial under way.
pub type Dial<S> = Work<Result<Socket<S>, DialError>>;

/// Samples the host for one connection; `None` is a host that does not say.
pub type Sampler = dyn FnMut() -> Work<Option<Health<'static>>> + Send;
