//! The records of a generation, read and written (node-host §1.9 I2, I5-I8). Each holds exactly its members, names the
//! installation, the generation and the specification, and is one line of JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::facts::{Collecting, Damage, Difference, Entry, Journals, Preparing};
use super::look::{Look, Status};
use crate::generation::configuration::{Configuration, Envelope};
use crate::limits::{MARKER_MAX_BYTES, PLAN_MAX_BYTES};
use crate::strict;
use crate::units::{Digest, Generation, Id};

/// Whom a record belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The installation of `provider.json`.
    pub installation: Id,
    /// The number in the file's name.
    pub generation: Generation,
    /// The digest of the specification.
    pub specification_digest: Digest,
}

/// What a record must name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Expected {
    /// The installation of `provider.json`.
    pub installation: Id,
    /// The number in the file's name.
    pub generation: Generation,
    /// The digest of the configuration or plan; `None` where neither names the generation any more.
    pub specification_digest: Option<Digest>,
}

/// A `.preparing` journal.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Whether native content may exist because of it.
    pub import_started: bool,
    /// What the generation becomes.
    pub configuration: Configuration,
}

/// What stands in `generations/` under one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Looks<'a> {
    /// `<g>.json`.
    pub configuration: Look<'a>,
    /// `<g>.preparing`.
    pub preparing: Look<'a>,
    /// `<g>.collecting`.
    pub collecting: Look<'a>,
    /// `<g>.dropped`.
    pub dropped: Look<'a>,
}

/// One generation as it is recorded.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// What the decisions look at.
    pub journals: Journals,
    /// The configuration that the generation serves with: `<g>.json`, or the base of the enrolled generation.
    pub configuration: Option<Configuration>,
    /// The specification that the generation is known by; `None` when nothing names it.
    pub specification_digest: Option<Digest>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct LeaseRecord {
    device: u64,
    generation: Generation,
    inode: u64,
    installation_id: Id,
    specification_digest: Digest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PreparingRecord {
    configuration: Configuration,
    generation: Generation,
    import_started: bool,
    installation_id: Id,
    specification_digest: Digest,
}

#[derive(Serialize)]
struct WrittenPlan<'a> {
    configuration: &'a Configuration,
    generation: Generation,
    import_started: bool,
    installation_id: Id,
    specification_digest: Digest,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct CollectingRecord {
    generation: Generation,
    installation_id: Id,
    native_complete: bool,
    specification_digest: Digest,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct DroppedRecord {
    generation: Generation,
    installation_id: Id,
    specification_digest: Digest,
}

impl Looks<'_> {
    /// Nothing stands there.
    pub const NONE: Self =
        Looks { configuration: Look::Absent, preparing: Look::Absent, collecting: Look::Absent, dropped: Look::Absent };

    /// Reads them together: the plan must agree with the configuration, and the markers with either.
    #[must_use]
    pub fn read(&self, base: &Configuration, generation: Generation) -> Recorded {
        let enrolled = base.envelope.generation == generation;
        let last = self.configuration.configuration(&base.envelope, generation);
        let last = last.and_then(|last| {
            // The enrolled generation has two sources, which must agree in all that Core can see.
            let difference = if enrolled { last.envelope.difference(&base.envelope) } else { None };
            ours(difference, last)
        });
        let (entry, last) = (last.to(|_| ()), last.ours().or_else(|| enrolled.then(|| base.clone())));
        let preparing = self.preparing.preparing(&base.envelope, generation, last.as_ref());
        let journal = preparing.to(|plan| Preparing { import_started: plan.import_started });
        let planned = preparing.ours().map(|plan| plan.configuration.envelope.digest());
        let specification_digest = last.as_ref().map(|last| last.envelope.digest()).or(planned);
        let expected = Expected { installation: base.envelope.installation, generation, specification_digest };
        let journals = Journals {
            enrolled,
            configuration: entry,
            preparing: journal,
            collecting: self.collecting.collecting(&expected),
            dropped: self.dropped.dropped(&expected),
        };
        Recorded { journals, configuration: last, specification_digest }
    }
}

impl Look<'_> {
    /// `provider.json`: ours, and not writable by everybody; it holds no secret.
    #[must_use]
    pub fn base(self) -> Entry<Configuration> {
        self.published(PLAN_MAX_BYTES).and_then(configuration)
    }

    /// `<g>.json`, which must agree with the base and with its own name.
    #[must_use]
    pub fn configuration(self, base: &Envelope, generation: Generation) -> Entry<Configuration> {
        self.private(PLAN_MAX_BYTES).and_then(configuration).and_then(|configuration| {
            let difference = difference_of_file(&configuration.envelope, base, generation);
            ours(difference, configuration)
        })
    }

    /// `<g>.preparing`, whose plan must agree with the base, with its own name and with the final configuration.
    #[must_use]
    pub fn preparing(self, base: &Envelope, generation: Generation, last: Option<&Configuration>) -> Entry<Plan> {
        self.private(PLAN_MAX_BYTES).and_then(record::<PreparingRecord>).and_then(|record| {
            let PreparingRecord { configuration, import_started, .. } = record;
            let owner = (record.installation_id, record.generation, record.specification_digest);
            let difference = difference_of_file(&configuration.envelope, base, generation)
                .or_else(|| Owner::of(&configuration.envelope).expected().difference(owner))
                .or_else(|| last.and_then(|last| last.difference_from_plan(&configuration)));
            ours(difference, Plan { import_started, configuration })
        })
    }

    /// `<g>.collecting`.
    #[must_use]
    pub fn collecting(self, expected: &Expected) -> Entry<Collecting> {
        self.private(MARKER_MAX_BYTES).and_then(record::<CollectingRecord>).and_then(|record| {
            let owner = (record.installation_id, record.generation, record.specification_digest);
            ours(expected.difference(owner), Collecting { native_complete: record.native_complete })
        })
    }

    /// `<g>.dropped`.
    #[must_use]
    pub fn dropped(self, expected: &Expected) -> Entry<()> {
        self.private(MARKER_MAX_BYTES).and_then(record::<DroppedRecord>).and_then(|record| {
            let owner = (record.installation_id, record.generation, record.specification_digest);
            ours(expected.difference(owner), ())
        })
    }

    /// `<g>.lease-identity`, which must name the device and inode of the opened `lease` (node-host §2.3).
    #[must_use]
    pub fn lease_record(self, expected: &Expected, lease: Status) -> Entry<()> {
        self.private(MARKER_MAX_BYTES).and_then(record::<LeaseRecord>).and_then(|record| {
            let owner = (record.installation_id, record.generation, record.specification_digest);
            let moved = (record.device, record.inode) != (lease.device, lease.inode);
            ours(expected.difference(owner).or(moved.then_some(Difference::Inode)), ())
        })
    }
}

/// A file must agree with the base, and carry the number of its name; the specification is its own.
fn difference_of_file(envelope: &Envelope, base: &Envelope, generation: Generation) -> Option<Difference> {
    let renumbered = (envelope.generation != generation).then_some(Difference::Generation);
    envelope.difference_of_base(base).or(renumbered)
}

fn ours<T>(difference: Option<Difference>, content: T) -> Entry<T> {
    difference.map_or(Entry::Ours(content), Entry::Foreign)
}

fn record<T: DeserializeOwned>(bytes: &[u8]) -> Entry<T> {
    strict::object(bytes).map_or(Entry::Damaged(Damage::Content), Entry::Ours)
}

fn configuration(bytes: &[u8]) -> Entry<Configuration> {
    Configuration::parse(bytes).map_or(Entry::Damaged(Damage::Content), Entry::Ours)
}

impl Expected {
    fn difference(&self, (installation, generation, digest): (Id, Generation, Digest)) -> Option<Difference> {
        if installation != self.installation {
            Some(Difference::Installation)
        } else if generation != self.generation {
            Some(Difference::Generation)
        } else if self.specification_digest.is_some_and(|expected| expected != digest) {
            Some(Difference::Specification)
        } else {
            None
        }
    }
}

impl Owner {
    /// The owner of every record of this configuration's generation.
    #[must_use]
    pub fn of(envelope: &Envelope) -> Self {
        Self {
            installation: envelope.installation,
            generation: envelope.generation,
            specification_digest: envelope.digest(),
        }
    }

    /// What its records must name.
    #[must_use]
    pub const fn expected(&self) -> Expected {
        Expected {
            installation: self.installation,
            generation: self.generation,
            specification_digest: Some(self.specification_digest),
        }
    }

    /// The content of `<g>.lease-identity` for an opened and synced lease.
    #[must_use]
    pub fn lease_record(&self, lease: Status) -> Vec<u8> {
        line(&LeaseRecord {
            device: lease.device,
            generation: self.generation,
            inode: lease.inode,
            installation_id: self.installation,
            specification_digest: self.specification_digest,
        })
    }

    /// The content of `<g>.collecting`.
    #[must_use]
    pub fn collecting(&self, Collecting { native_complete }: Collecting) -> Vec<u8> {
        line(&CollectingRecord {
            generation: self.generation,
            installation_id: self.installation,
            native_complete,
            specification_digest: self.specification_digest,
        })
    }

    /// The content of `<g>.dropped`.
    #[must_use]
    pub fn dropped(&self) -> Vec<u8> {
        line(&DroppedRecord {
            generation: self.generation,
            installation_id: self.installation,
            specification_digest: self.specification_digest,
        })
    }
}

impl Plan {
    /// The content of `<g>.preparing`.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let owner = Owner::of(&self.configuration.envelope);
        line(&WrittenPlan {
            configuration: &self.configuration,
            generation: owner.generation,
            import_started: self.import_started,
            installation_id: owner.installation,
            specification_digest: owner.specification_digest,
        })
    }
}

fn line(record: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(record).expect("checked members serialise");
    bytes.push(b'\n');
    bytes
}
