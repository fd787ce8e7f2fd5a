//! Tar archives that depend on their content alone: no clock, owner name or folder order of the building machine.

use std::io;

use tar::{Builder, EntryType, Header};

/// One archive under construction. Callers add entries in the order in which they shall stand.
pub(crate) struct Archive(Builder<Vec<u8>>);

/// Permission bits and owner of an entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    pub(crate) mode: u32,
    pub(crate) owner: u32,
}

impl Archive {
    pub(crate) fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    pub(crate) fn folder(&mut self, path: &str, meta: Meta) {
        self.0.append_data(&mut header(EntryType::Directory, meta, 0), path, io::empty()).expect(IN_MEMORY);
    }

    pub(crate) fn file(&mut self, path: &str, meta: Meta, content: &[u8]) {
        let mut header = header(EntryType::Regular, meta, content.len() as u64);
        self.0.append_data(&mut header, path, content).expect(IN_MEMORY);
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) {
        let mut header = header(EntryType::Symlink, Meta { mode: 0o777, owner: 0 }, 0);
        self.0.append_link(&mut header, path, target).expect(IN_MEMORY);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0.into_inner().expect(IN_MEMORY)
    }
}

const IN_MEMORY: &str = "an archive in memory with short constant paths cannot fail";

fn header(kind: EntryType, meta: Meta, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(meta.mode);
    header.set_uid(meta.owner.into());
    header.set_gid(meta.owner.into());
    header.set_size(size);
    header.set_mtime(0);
    header
}

/// Compresses with a header that names no time, no file and no system.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    const UNKNOWN_SYSTEM: u8 = 255;
    let builder = flate2::GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM);
    let mut encoder = builder.write(Vec::new(), flate2::Compression::new(6));
    io::Write::write_all(&mut encoder, bytes).expect("writing to memory cannot fail");
    encoder.finish().expect("writing to memory cannot fail")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_depends_on_its_content_alone() {
        let build = || {
            let mut archive = Archive::new();
            archive.folder("a", Meta { mode: 0o755, owner: 0 });
            archive.file("a/b", Meta { mode: 0o644, owner: 1000 }, b"content");
            archive.link("c", "a/b");
            gzip(&archive.finish())
        };
        let bytes = build();
        assert_eq!(bytes, build());
        assert_eq!(bytes[4..8], [0; 4], "no time in the compressed header");
    }
}
