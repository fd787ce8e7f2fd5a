//! The one way into a provider.

use std::time::Instant;

use palisade_core::operation::{Operation, Support};
use palisade_core::outcome::{Answer, Failed, Failure};

use crate::{Context, Provider};

/// Carries out `operation` if the provider declares it supported and time is left.
///
/// # Errors
/// `unsupported` with the declared reason, or `unconfirmed` after the deadline, both before any native call; else
/// what [`Provider::execute`] answers.
pub async fn dispatch(
    provider: &(impl Provider + ?Sized),
    context: Context,
    operation: Operation<'static>,
) -> Result<Answer<'static>, Failed<'static>> {
    let method = operation.method();
    match provider.declaration().support(method) {
        Support::Unsupported { reason } => {
            Err(Failure::Unsupported { method: method.name().to_owned(), reason: reason.clone() }.into())
        }
        Support::Supported if Instant::now() >= context.deadline => Err(Failure::Unconfirmed.into()),
        Support::Supported => provider.execute(context, operation).await,
    }
}
