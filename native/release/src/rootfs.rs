//! The file system of a sandbox: the guest entry and a small userland (decisions 18, 25 and 42).

use std::collections::BTreeSet;

use crate::archive::{Archive, Meta};
use crate::image::RUNTIME_UID;

/// Where the guest entry stands in the image.
pub(crate) const GUEST: &str = "usr/local/bin/oac-sandbox-io";
/// Links to busybox in `/bin`, sorted. No program that administers a machine is among them.
const TOOLS: &[&str] = &[
    "[",
    "[[",
    "ar",
    "arch",
    "ash",
    "awk",
    "base64",
    "basename",
    "bc",
    "bunzip2",
    "bzcat",
    "bzip2",
    "cal",
    "cat",
    "chgrp",
    "chmod",
    "chown",
    "cksum",
    "clear",
    "cmp",
    "comm",
    "cp",
    "cpio",
    "cut",
    "date",
    "dc",
    "dd",
    "df",
    "diff",
    "dirname",
    "dos2unix",
    "du",
    "echo",
    "ed",
    "egrep",
    "env",
    "expand",
    "expr",
    "factor",
    "false",
    "fgrep",
    "find",
    "flock",
    "fold",
    "free",
    "getopt",
    "grep",
    "groups",
    "gunzip",
    "gzip",
    "head",
    "hexdump",
    "hostname",
    "id",
    "install",
    "ionice",
    "kill",
    "killall",
    "less",
    "link",
    "ln",
    "logname",
    "ls",
    "lzcat",
    "md5sum",
    "mkdir",
    "mkfifo",
    "mktemp",
    "more",
    "mv",
    "nc",
    "nice",
    "nl",
    "nohup",
    "nproc",
    "nslookup",
    "od",
    "paste",
    "patch",
    "pgrep",
    "pidof",
    "printenv",
    "printf",
    "ps",
    "pwd",
    "readlink",
    "realpath",
    "renice",
    "rev",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "setsid",
    "sh",
    "sha1sum",
    "sha256sum",
    "sha3sum",
    "sha512sum",
    "shred",
    "shuf",
    "sleep",
    "sort",
    "split",
    "stat",
    "strings",
    "stty",
    "sum",
    "sync",
    "tac",
    "tail",
    "tar",
    "taskset",
    "tee",
    "test",
    "time",
    "timeout",
    "top",
    "touch",
    "tr",
    "true",
    "truncate",
    "ts",
    "tty",
    "uname",
    "uncompress",
    "unexpand",
    "uniq",
    "unix2dos",
    "unlink",
    "unlzma",
    "unxz",
    "unzip",
    "uptime",
    "usleep",
    "uudecode",
    "uuencode",
    "vi",
    "watch",
    "wc",
    "wget",
    "which",
    "who",
    "whoami",
    "xargs",
    "xxd",
    "xz",
    "xzcat",
    "yes",
    "zcat",
];
const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\nruntime:x:1000:1000:runtime:/home/runtime:/bin/sh\n\
nobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &[u8] = b"root:x:0:\nruntime:x:1000:\nnogroup:x:65534:\n";

const ROOT_OWNED: Meta = Meta { mode: 0o755, owner: 0 };
const PROGRAM: Meta = Meta { mode: 0o755, owner: 0 };
const PRIVATE: Meta = Meta { mode: 0o700, owner: RUNTIME_UID };

/// One layer that holds the whole file system, for the applets that this busybox was built with.
pub(crate) fn layer(guest: &[u8], busybox: &[u8]) -> Vec<u8> {
    let mut layer = Archive::new();
    layer.folder("bin", ROOT_OWNED);
    layer.file("bin/busybox", PROGRAM, busybox);
    let offered = texts(busybox);
    for tool in TOOLS.iter().filter(|tool| offered.contains(tool.as_bytes())) {
        layer.link(&format!("bin/{tool}"), "busybox");
    }
    layer.folder("dev", ROOT_OWNED);
    layer.folder("environment", Meta { mode: 0o755, owner: RUNTIME_UID });
    // Present in the image, so that the engine does not create it for root when it prepares the working directory.
    layer.folder("environment/workspace", PRIVATE);
    layer.folder("etc", ROOT_OWNED);
    layer.file("etc/group", Meta { mode: 0o644, owner: 0 }, GROUP);
    layer.file("etc/passwd", Meta { mode: 0o644, owner: 0 }, PASSWD);
    layer.folder("home", ROOT_OWNED);
    layer.folder("home/runtime", PRIVATE);
    for mount_point in ["proc", "run", "sys"] {
        layer.folder(mount_point, ROOT_OWNED);
    }
    layer.folder("root", Meta { mode: 0o700, owner: 0 });
    layer.folder("tmp", Meta { mode: 0o1777, owner: 0 });
    for folder in ["usr", "usr/bin"] {
        layer.folder(folder, ROOT_OWNED);
    }
    // Scripts name this path in their first line.
    layer.link("usr/bin/env", "/bin/busybox");
    for folder in ["usr/local", "usr/local/bin"] {
        layer.folder(folder, ROOT_OWNED);
    }
    layer.file(GUEST, PROGRAM, guest);
    layer.folder("var", ROOT_OWNED);
    layer.folder("var/tmp", Meta { mode: 0o1777, owner: 0 });
    layer.link("workspace", "/environment/workspace");
    layer.finish()
}

/// Every zero-terminated text of the program; its table of applet names is among them.
fn texts(program: &[u8]) -> BTreeSet<&[u8]> {
    program.split(|byte| *byte == 0).filter(|text| !text.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_sorted_and_named_once() {
        assert!(TOOLS.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn only_tools_that_the_program_offers_are_linked() {
        let layer = layer(b"guest", b"elf\0cat\0sh\0");
        let mut archive = tar::Archive::new(&layer[..]);
        let links: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .filter(|path| path.starts_with("bin/"))
            .collect();
        assert_eq!(links, ["bin/busybox", "bin/cat", "bin/sh"]);
    }
}
