//! Creation: exactly one attempt, in the order of node-host §7.4, never cancelled (decision 34).

use std::sync::Arc;
use std::time::Instant;

use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::wire::payload::{Bootstrap, Info};
use palisade_provider::{Context, flattened, refused_before_native_call};

use crate::bootstrap::Files;
use crate::container::{body, volume};
use crate::engine::{EngineError, Wait};
use crate::name::owns;
use crate::provider::{Docker, observed, unconfirmed};

/// How an attempt stopped short.
struct Stopped {
    failed: Box<Failed<'static>>,
    /// The engine answered everything that it was asked to change.
    ended: bool,
}

impl Stopped {
    /// A failure with nothing left open in the engine.
    fn ended(failure: impl Into<Failed<'static>>) -> Self {
        Self { failed: Box::new(failure.into()), ended: true }
    }

    /// A call that changes something failed; without an answer nobody knows whether it still will.
    fn mutation(error: EngineError) -> Self {
        let ended = matches!(error, EngineError::Refused { .. } | EngineError::TooOld(_));
        Self { failed: Box::new(unconfirmed(error).into()), ended }
    }
}

impl Docker {
    /// Creates the sandbox in a task of its own, which goes on when nobody waits for it any more.
    pub(crate) async fn create(
        self: Arc<Self>,
        context: Context,
        bootstrap: Bootstrap<'static>,
    ) -> Result<Answer<'static>, Failed<'static>> {
        let files = match Files::pack(context.reference, &bootstrap) {
            Ok(files) => files,
            Err(failure) if self.settlement.is_unknown(context.reference) => {
                return Err(refused_before_native_call(failure, context.reference));
            }
            Err(failure) => return Err(failure.into()),
        };
        let attempt = tokio::spawn(async move { self.attempt(context, files).await });
        match attempt.await {
            Ok(result) => result,
            Err(_panicked) => Err(Failure::Unconfirmed.into()),
        }
    }

    async fn attempt(&self, context: Context, files: Files) -> Result<Answer<'static>, Failed<'static>> {
        let Some(attempt) = self.settlement.begin(context.reference) else {
            return Err(Failure::Exists.into());
        };
        match self.steps(context, files).await {
            Ok(info) => {
                attempt.ended();
                Ok(Answer::Info(info))
            }
            Err(Stopped { failed, ended }) => {
                if ended {
                    attempt.ended();
                }
                Err(*failed)
            }
        }
    }

    async fn steps(&self, context: Context, files: Files) -> Result<Info<'static>, Stopped> {
        self.refuse_existing(context).await?;
        self.create_volumes(context).await?;
        let id = self.create_container(context).await?;
        self.check_created(context, &id).await?;
        self.bootstrap_and_start(context, &id, files).await?;
        let wait = Wait::Until(context.deadline);
        let container = self.owned_container(context.reference, wait).await.map_err(Stopped::ended)?;
        let container = container.ok_or_else(|| Stopped::ended(Failure::Unconfirmed))?;
        self.present(context, &container).await.map_err(Stopped::ended)
    }

    /// A container or volumes of the name: the sandbox exists, or it is lost and never reused.
    async fn refuse_existing(&self, context: Context) -> Result<(), Stopped> {
        let wait = Wait::Until(context.deadline);
        if let Some(container) = self.owned_container(context.reference, wait).await.map_err(Stopped::ended)? {
            let info = Some(observed(context.reference, &container));
            return Err(Stopped::ended(Failed { failure: Failure::Exists, info, state: None }));
        }
        let mut leftover = false;
        for name in self.names(context.reference).volumes() {
            leftover |= self.owned_volume(context.reference, name, wait).await.map_err(Stopped::ended)?;
        }
        if leftover { Err(Stopped::ended(Failure::Exists)) } else { Ok(()) }
    }

    async fn create_volumes(&self, context: Context) -> Result<(), Stopped> {
        for name in self.names(context.reference).volumes() {
            in_time(context)?;
            let request = volume(&self.settings, context.reference, name);
            let created = self.engine.create_volume(request).await.map_err(Stopped::mutation)?;
            // The engine answers with an existing volume of the name, whoever owns it.
            if !owns(self.settings.installation, context.reference, Some(&created.labels)) {
                return Err(Stopped::ended(Failure::Ownership));
            }
        }
        Ok(())
    }

    async fn create_container(&self, context: Context) -> Result<String, Stopped> {
        in_time(context)?;
        let names = self.names(context.reference);
        let body = body(&self.settings, context.reference, &names);
        self.engine.create_container(&names.container, body).await.map_err(|error| {
            if error.is_status(409) { Stopped::ended(Failure::Exists) } else { Stopped::mutation(error) }
        })
    }

    /// Limits and image as asked; a failure is settled, since the sandbox will not be started.
    async fn check_created(&self, context: Context, id: &str) -> Result<(), Stopped> {
        in_time(context)?;
        let wait = Wait::Until(context.deadline);
        let qualified = match self.engine.container(id, wait).await {
            Ok(Some(container)) => self.qualify(&container, wait).await,
            Ok(None) => Err(Failure::Unconfirmed),
            Err(error) => Err(unconfirmed(error)),
        };
        qualified.map_err(|failure| {
            let info = Info {
                reference: flattened(context.reference),
                provider_id: id.to_owned().into(),
                state: "created".into(),
                bootstrap_complete: false,
                create_settled: true,
            };
            Stopped::ended(Failed { failure, info: Some(info), state: None })
        })
    }

    async fn bootstrap_and_start(&self, context: Context, id: &str, files: Files) -> Result<(), Stopped> {
        for (directory, archive) in [("/home", files.home), ("/environment", files.environment)] {
            in_time(context)?;
            self.engine.upload(id, directory, archive).await.map_err(Stopped::mutation)?;
        }
        in_time(context)?;
        self.engine.start(id).await.map_err(Stopped::mutation)
    }
}

/// A creation whose time is over starts nothing more.
fn in_time(context: Context) -> Result<(), Stopped> {
    if Instant::now() < context.deadline { Ok(()) } else { Err(Stopped::ended(Failure::Unconfirmed)) }
}
