//! What a look at the disk, the provider and Core came to, for one generation. Plain values, every combination of
//! which can be written down; nothing here decides anything.

/// One entry of the file system, after it was read and compared with what it must say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry<T> {
    /// There is no entry of that name, not even a dangling link.
    Absent,
    /// It is there, and nothing in it may be believed.
    Damaged(Damage),
    /// It reads well, and speaks of something else.
    Foreign(Difference),
    /// It says this, about this generation of this installation.
    Ours(T),
}

/// Why an entry is not believed (node-host §1.8, §2.1, §2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Damage {
    /// A symbolic link stands on its path.
    Link,
    /// It is neither the regular file nor the directory that belongs there: a FIFO, a device, a socket.
    Kind,
    /// Another account owns it, or its permissions are not exactly the required ones.
    Access,
    /// The file has more than one name.
    HardLink,
    /// It is longer than its kind may be.
    Size,
    /// Not exactly the members, of the required types, and nothing after them.
    Content,
    /// The path names another file than the one that was opened.
    Replaced,
    /// It could not be read.
    Unreadable,
    /// Another file or folder is mounted on it, or below it.
    Mount,
}

/// In what an entry or an answer differs from this generation of this installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Difference {
    /// It belongs to another installation.
    Installation,
    /// It belongs to another provider.
    Provider,
    /// It belongs to another Core.
    Core,
    /// It carries another generation number.
    Generation,
    /// It carries another specification.
    Specification,
    /// A lease record names another device or inode than the lease.
    Inode,
    /// The provider's own part differs where nothing but a resolved image may.
    Native,
}

/// A lock file of this run: `install.lock`, or the lease of the generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lock {
    /// This run has not tried yet.
    Open,
    /// This run holds it exclusively, and its path still names the locked inode.
    Held,
    /// Somebody else holds it.
    Busy,
    /// This run locked an inode that the path no longer names.
    Replaced,
}

/// `<g>.lease` (node-host §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lease {
    /// There is none.
    Absent,
    /// It is no empty private file with one name.
    Damaged(Damage),
    /// This run created it, and nobody else can know it yet.
    Created,
    /// It was there before this run.
    Present,
}

/// Who may work on the generation: the installation, the lease and its record (node-host §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    /// `install.lock`.
    pub installation: Lock,
    /// `generations/`, a real private directory.
    pub directory: Entry<()>,
    /// `<g>.lease`.
    pub lease: Lease,
    /// `<g>.lease-identity`, compared with the generation and with the lease's device and inode.
    pub record: Entry<()>,
    /// The exclusive lock on the lease.
    pub lock: Lock,
}

/// What a `.preparing` journal says whose plan agrees with the base and, if there is one, with the final configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Preparing {
    /// Whether native content may exist because of it.
    pub import_started: bool,
}

/// What a `.collecting` journal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Collecting {
    /// Whether native content is gone or proven to be shared.
    pub native_complete: bool,
}

/// The durable word on one generation (node-host §1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Journals {
    /// Whether `provider.json` is the configuration of this generation: it is the one that was enrolled.
    pub enrolled: bool,
    /// `<g>.json`.
    pub configuration: Entry<()>,
    /// `<g>.preparing`.
    pub preparing: Entry<Preparing>,
    /// `<g>.collecting`.
    pub collecting: Entry<Collecting>,
    /// `<g>.dropped`.
    pub dropped: Entry<()>,
}

impl Journals {
    /// Nothing is recorded.
    pub const NONE: Self = Self {
        enrolled: false,
        configuration: Entry::Absent,
        preparing: Entry::Absent,
        collecting: Entry::Absent,
        dropped: Entry::Absent,
    };

    /// Whether a configuration or a plan names the generation (node-host §3.5).
    #[must_use]
    pub fn is_retained(&self) -> bool {
        self.enrolled || self.configuration != Entry::Absent || self.preparing != Entry::Absent
    }
}

/// What the rest of the installation says: `provider.json`, and the scan of all other generations (node-host §3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Surroundings {
    /// `provider.json`.
    pub base: Entry<()>,
    /// Every other generation's configuration and journals, the first unsound one standing for all; [`super::discover`]
    /// names it. Absent when there is no other generation.
    pub others: Entry<()>,
}

/// An authorisation, compared with what it must say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Authority {
    /// It was not asked for yet.
    Unasked,
    /// It names exactly this generation and specification.
    Agrees,
    /// It does not.
    Differs(Difference),
}

/// The files of the generation's Runtime release, all existing ones checksummed (node-host §3.2 step 13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Files {
    /// All are there, and the release's manifest is.
    Whole,
    /// All are there, and the manifest is not.
    Unlisted,
    /// Some are not there; all others have the right content.
    Missing,
    /// One that is there has other content.
    Conflict,
    /// A link, a foreign path, a foreign owner.
    Damaged(Damage),
}

/// Where the provider keeps what it makes of the generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Home {
    /// Docker: whether the installation's network exists.
    Network(bool),
    /// microsandbox: the store with its owner record. A non-empty store without one is foreign.
    Store(Entry<()>),
}

/// The Runtime image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Image {
    /// The provider has it, under one of the two release identities.
    Available,
    /// The provider does not have it.
    Absent,
    /// The provider has another one in its place.
    Wrong,
    /// The provider did not say.
    Unknown,
}

/// Everything a preparation or a repair looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Preparation {
    /// Who may work.
    pub claim: Claim,
    /// What is recorded.
    pub journals: Journals,
    /// What else is recorded.
    pub surroundings: Surroundings,
    /// Core's configuration for exactly this generation.
    pub core: Authority,
    /// The files of its release.
    pub files: Files,
    /// Network or store.
    pub home: Home,
    /// The Runtime image.
    pub image: Image,
}

/// `releases/<source>` of a generation that is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Release {
    /// Nothing is left of it, or the generation never had one of its own.
    Gone,
    /// Another retained generation uses the same source.
    Shared,
    /// Something of it is there, without any link.
    Present,
    /// A link or a foreign path: nothing of it is touched.
    Damaged(Damage),
}

/// Files below ROOT of the original generation that a collection may remove, all verified together (node-host §3.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Originals {
    /// None is left, or none is this generation's alone.
    Gone,
    /// Every one that is there has its recorded content.
    Verified,
    /// One of them has other content, another name or a link.
    Conflict,
    /// `runtime-artifacts.json` does not say what they must be.
    Unrecorded,
}

/// A file whose content is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Executable {
    /// It has the content of the specification.
    Verified,
    /// It is not there.
    Missing,
    /// It has other content, or a link leads to it.
    Conflict,
}

/// The microsandbox image inventory (node-host §3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inventory {
    /// Another retained generation of the same store uses the same image.
    Shared,
    /// The whole list was read and does not name it.
    Absent,
    /// The whole list was read and names it.
    Listed,
    /// It could not be removed, because something uses it.
    InUse,
    /// The query failed, or a line of its answer is malformed.
    Unknown,
}

/// What runs in a microsandbox store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sandboxes {
    /// Another retained generation uses the same store.
    Shared,
    /// The list is exactly empty.
    None,
    /// The list names something.
    Some,
    /// The query failed, or its answer is malformed.
    Unknown,
}

/// What a provider holds of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Native {
    /// The engine is shared; nothing is ever removed from it.
    Docker,
    /// Everything lives in the installation's own store.
    Microsandbox {
        /// The store with its owner record.
        store: Entry<()>,
        /// The program that answers for the store.
        executable: Executable,
        /// The Runtime image.
        image: Inventory,
        /// The sandboxes of the store.
        sandboxes: Sandboxes,
    },
}

/// Everything a collection looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Collection {
    /// Who may work.
    pub claim: Claim,
    /// What is recorded.
    pub journals: Journals,
    /// What else is recorded.
    pub surroundings: Surroundings,
    /// Core's drop grant of the current connection.
    pub grant: Authority,
    /// `releases/<source>`.
    pub release: Release,
    /// Files below ROOT.
    pub originals: Originals,
    /// What the provider holds.
    pub native: Native,
}
