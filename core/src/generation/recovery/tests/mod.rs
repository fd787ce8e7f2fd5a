mod chapter;
mod disk;
mod exhaustive;
mod histories;
mod records;
mod refusals;
mod tables;

use super::*;

/// The locks are held and the lease is recorded.
const CLAIMED: Claim = Claim {
    installation: Lock::Held,
    directory: Entry::Ours(()),
    lease: Lease::Present,
    record: Entry::Ours(()),
    lock: Lock::Held,
};

const SURROUNDED: Surroundings = Surroundings { base: Entry::Ours(()), others: Entry::Ours(()) };

/// A finished generation.
const FINAL: Journals = Journals { configuration: Entry::Ours(()), ..Journals::NONE };

const PREPARATION: Preparation = Preparation {
    claim: CLAIMED,
    journals: Journals::NONE,
    surroundings: SURROUNDED,
    core: Authority::Agrees,
    files: Files::Missing,
    home: Home::Store(Entry::Absent),
    image: Image::Absent,
};

const COLLECTION: Collection = Collection {
    claim: CLAIMED,
    journals: FINAL,
    surroundings: SURROUNDED,
    grant: Authority::Agrees,
    release: Release::Present,
    originals: Originals::Gone,
    native: Native::Microsandbox {
        store: Entry::Ours(()),
        executable: Executable::Verified,
        image: Inventory::Listed,
        sandboxes: Sandboxes::None,
    },
};

fn refusal<T>(object: Object, cause: Cause) -> Result<T, Refusal> {
    Err(Refusal { object, cause })
}
