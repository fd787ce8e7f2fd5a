//! Faults that are planted on purpose, to show that the books find them.

/// One planted fault. Each breaks a shell of the simulation, never a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// The node carries out whatever arrives, as if it were fenced correctly.
    NodeIgnoresFence,
    /// Core sends a command again when nobody knows what came of it.
    CoreReplaysCommand,
    /// Core takes a recorded attempt back although the create was sent.
    CoreForgetsAttempt,
    /// Core releases an allocation as soon as it asked for a kill.
    CoreReleasesEarly,
    /// Core accepts a second connection of an identity.
    CoreAcceptsTwice,
    /// Core never looks at the clock of a silent connection.
    CoreNeverTiresOfSilence,
    /// Core lets more than 32 wait for one connection.
    CoreTakesUnknownCodeForFailure,
    /// The disk of the node loses the epoch that it acknowledged.
    DiskDropsEpoch,
    /// The node takes any retention answer for the one it waits for.
    NodeTrustsStaleRetention,
    /// A collection does not look whether somebody still uses the generation.
    CollectionIgnoresHolds,
    /// The preparer does not look at what was dropped.
    PreparerIgnoresDropped,
    /// The node's clock stands still while its host is suspended.
    ClockStopsInSuspend,
    /// The heartbeat waits for the provider.
    HeartbeatWaitsForProvider,
    /// The node believes any 401.
    NodeBelievesProxy,
    /// The node gives up after a conflict.
    NodeGivesUpOnConflict,
    /// The engine's cleanup removes what is not ours.
    EnginePrunesStrangers,
    /// The engine loses a sandbox when its node starts.
    EngineKillsAtStart,
    /// Core sends a suspend or a resume again when nobody knows what came of it.
    CoreSendsCaptureAgain,
    /// Core removes a snapshot before anything was restored from it.
    CoreDropsSnapshotEarly,
    /// Core forgets what a failed resume left behind.
    CoreForgetsFailedTarget,
    /// Core stops without waiting for its connections.
    CoreStopsInHaste,
    /// Core never ends, although its last connection has.
    CoreNeverEnds,
    /// Core takes suspended compute for kept long enough whenever it looks.
    CoreExpiresEarly,
    /// The engine starts what was captured beside what was restored from it.
    EngineStartsSourceAgain,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::NodeIgnoresFence,
        Self::CoreReplaysCommand,
        Self::CoreForgetsAttempt,
        Self::CoreReleasesEarly,
        Self::CoreAcceptsTwice,
        Self::CoreNeverTiresOfSilence,
        Self::CoreTakesUnknownCodeForFailure,
        Self::DiskDropsEpoch,
        Self::NodeTrustsStaleRetention,
        Self::CollectionIgnoresHolds,
        Self::PreparerIgnoresDropped,
        Self::ClockStopsInSuspend,
        Self::HeartbeatWaitsForProvider,
        Self::NodeBelievesProxy,
        Self::NodeGivesUpOnConflict,
        Self::EnginePrunesStrangers,
        Self::EngineKillsAtStart,
        Self::CoreSendsCaptureAgain,
        Self::CoreDropsSnapshotEarly,
        Self::CoreForgetsFailedTarget,
        Self::CoreStopsInHaste,
        Self::CoreNeverEnds,
        Self::CoreExpiresEarly,
        Self::EngineStartsSourceAgain,
    ];
}
