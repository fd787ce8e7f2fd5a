//! Bytes of records as they may lie on a disk: written by us, cut, changed, or by somebody else.

use arbitrary::{Result, Unstructured};
use palisade_core::generation::configuration::Configuration;
use palisade_core::generation::recovery::{Collecting, Entry, FileKind, Look, Looks, Name, Owner, Plan, Status, local};
use palisade_core::units::Generation;

use super::super::values::{generation, id};
use super::facts::damage;

const RUNTIME: &str = concat!(
    r#"{"source_commit":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","#,
    r#""image_id":"sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","#,
    r#""image_manifest_digest":"sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc","#,
    r#""microsandbox_ref":"oac-runtime@sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd","#,
    r#""runtime_sha256":"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee","#,
    r#""firmware_sha256":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}"#
);

/// The four records of one generation, read together, and the names beside them.
pub(super) fn check(source: &mut Unstructured<'_>) -> Result<()> {
    let enrolled = generation(source.arbitrary()?);
    let number = if source.arbitrary()? { enrolled } else { generation(source.arbitrary()?) };
    let Some(base) = configuration(enrolled) else { panic!("the fixture is a configuration") };
    let Some(own) = configuration(number) else { panic!("the fixture is a configuration") };
    let owner = Owner::of(&own.envelope);
    let plan = Plan { import_started: source.arbitrary()?, configuration: own.clone() };
    let written = [
        own.to_bytes(),
        plan.to_bytes(),
        owner.collecting(Collecting { native_complete: source.arbitrary()? }),
        owner.dropped(),
    ];
    let mut files = Vec::new();
    for bytes in written {
        files.push(File::of(source, bytes)?);
    }
    let looks = Looks {
        configuration: files[0].look(),
        preparing: files[1].look(),
        collecting: files[2].look(),
        dropped: files[3].look(),
    };
    let recorded = looks.read(&base, number);
    let _judged = local(&recorded.journals);
    assert_eq!(recorded.journals.enrolled, number == enrolled);
    if files.iter().all(|file| file.is_untouched) {
        assert!(recorded.journals.configuration == Entry::Ours(()) && recorded.journals.dropped == Entry::Ours(()));
    }
    if let Some(configuration) = recorded.configuration {
        let again = Configuration::parse(&configuration.to_bytes()).expect("what is written is read");
        assert_eq!(again.envelope, configuration.envelope);
    }
    let _read = Name::parse(source.arbitrary()?);
    Ok(())
}

fn configuration(generation: Generation) -> Option<Configuration> {
    let text = format!(
        concat!(
            r#"{{"installation_id":"{}","core_url":"https://core.example/api/v1","generation":{},"provider":"docker","#,
            r#""specification":{{"resources":{{"cpus":2,"memory_mib":4096}},"runtime":{}}},"native":{{"image":"x"}}}}"#
        ),
        id(1, 2),
        generation,
        RUNTIME
    );
    Configuration::parse(text.as_bytes()).ok()
}

/// A file, as it was written or as something made it.
struct File {
    bytes: Vec<u8>,
    look: Kind,
    is_untouched: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Absent,
    Failed(palisade_core::generation::recovery::Damage),
    Opened(Status),
}

impl File {
    fn of(source: &mut Unstructured<'_>, mut bytes: Vec<u8>) -> Result<Self> {
        let look = match source.int_in_range(0..=9_u8)? {
            0 => Kind::Absent,
            1 => Kind::Failed(damage(source)?),
            2 => Kind::Opened(status(source)?),
            _ => Kind::Opened(SOUND),
        };
        let change = source.int_in_range(0..=7_u8)?;
        match change {
            0 => bytes = source.arbitrary()?,
            1 => bytes.truncate(usize::from(source.arbitrary::<u16>()?)),
            2 => {
                let at = source.choose_index(bytes.len())?;
                bytes[at] = source.arbitrary()?;
            }
            3 => bytes.fill(0),
            _ => {}
        }
        Ok(Self { is_untouched: change > 3 && matches!(look, Kind::Opened(SOUND)), bytes, look })
    }

    fn look(&self) -> Look<'_> {
        match self.look {
            Kind::Absent => Look::Absent,
            Kind::Failed(damage) => Look::Failed(damage),
            Kind::Opened(status) => Look::Opened(status, &self.bytes),
        }
    }
}

const SOUND: Status = Status { kind: FileKind::File, owned: true, mode: 0o600, links: 1, device: 1, inode: 2 };

fn status(source: &mut Unstructured<'_>) -> Result<Status> {
    Ok(Status {
        kind: *source.choose(&[FileKind::File, FileKind::Directory, FileKind::Other])?,
        owned: source.arbitrary()?,
        mode: source.int_in_range(0..=0o7777)?,
        links: source.int_in_range(0..=3)?,
        device: source.arbitrary()?,
        inode: source.arbitrary()?,
    })
}
