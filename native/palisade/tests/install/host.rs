//! A host that an operator types on: a home, a user, a search path, and an installer that writes down how it was started.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use palisade_core::install::{Install, Uninstall};
use palisade_core::units::Digest;
use tempfile::TempDir;

use crate::server::Server;

/// Every shell that the texts promise to work in.
pub(crate) const SHELLS: [&[&str]; 4] = [&["bash"], &["dash"], &["zsh", "-f"], &["busybox", "sh"]];
pub(crate) const BASH: &[&str] = SHELLS[0];
pub(crate) const DASH: &[&str] = SHELLS[1];

pub(crate) const ID: &str = "3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e";
pub(crate) const TOKEN: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
/// An ordinary user, who may use sudo without a password.
const USER: u32 = 65_534;

/// Who types.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    User,
    Root,
}

pub(crate) struct Host {
    folder: TempDir,
    who: Who,
    environment: BTreeMap<String, String>,
    /// Typed before the command.
    pub(crate) prelude: String,
}

impl Host {
    pub(crate) fn new(who: Who) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "these tests need root");
        let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        let host = Self { folder, who, environment: BTreeMap::new(), prelude: String::new() };
        for name in ["home", "tmp", "started", "bin"] {
            std::fs::create_dir(host.path(name)).unwrap();
            std::fs::set_permissions(host.path(name), Permissions::from_mode(0o755)).unwrap();
            host.give(&host.path(name));
        }
        std::fs::write(host.path("sudoers"), format!("Defaults env_reset, !syslog\n#{USER} ALL=(ALL) NOPASSWD: ALL\n"))
            .unwrap();
        std::fs::set_permissions(host.path("sudoers"), Permissions::from_mode(0o440)).unwrap();
        host
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The private folder of downloads.
    pub(crate) fn cache(&self) -> PathBuf {
        self.path("home/.oac/node-bootstrap")
    }

    pub(crate) fn partial(&self) -> PathBuf {
        self.cache().join("download.partial")
    }

    /// Makes a file belong to whoever types.
    pub(crate) fn give(&self, path: &Path) {
        if self.who == Who::User {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
    }

    /// Makes the private folder as an earlier run leaves it.
    pub(crate) fn make_cache(&self) {
        for path in [self.path("home/.oac"), self.cache()] {
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
            self.give(&path);
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.environment.insert(name.to_owned(), value.to_owned());
    }

    /// Puts a program before all others.
    pub(crate) fn stub(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    /// An installer that writes down its arguments, environment, input and user, and ends with `status`.
    pub(crate) fn installer(&self, status: u8) -> Vec<u8> {
        self.installer_that("", status)
    }

    /// [`Host::installer`] that does something before it reads its input; `$to` is the folder it writes to.
    pub(crate) fn installer_that(&self, first: &str, status: u8) -> Vec<u8> {
        let to = self.path("started").display().to_string();
        let script = format!(
            "#!/bin/sh\nto={to}\nprintf '%s\\n' \"$@\" >$to/arguments\nenv -0 >$to/environment\nid -u >$to/user\n{first}\n\
             cat >$to/input\nexit {status}\n"
        );
        script.into_bytes()
    }

    /// What the installer wrote down; `None` when it was never started.
    pub(crate) fn started(&self) -> Option<Started> {
        let read = |name: &str| std::fs::read_to_string(self.path("started").join(name));
        let arguments = read("arguments").ok()?;
        let environment = read("environment").unwrap();
        let pairs = environment.split_terminator('\0').filter_map(|pair| pair.split_once('='));
        Some(Started {
            arguments: arguments.lines().map(str::to_owned).collect(),
            environment: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            input: read("input").unwrap(),
            user: read("user").unwrap().trim().to_owned(),
        })
    }

    /// Every file below the folder of downloads, with its mode.
    pub(crate) fn cached(&self) -> BTreeMap<String, u32> {
        let entries = std::fs::read_dir(self.cache()).unwrap().map(Result::unwrap);
        let described = |entry: std::fs::DirEntry| {
            (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().permissions().mode() & 0o7777)
        };
        entries.map(described).collect()
    }

    /// Types a text into a shell, and waits.
    pub(crate) fn run(&self, shell: &[&str], text: &str) -> Output {
        self.spawn(shell, text).wait_with_output().unwrap()
    }

    /// Types a text into a shell, which leads a process group of its own. The text stands in no argument.
    pub(crate) fn spawn(&self, shell: &[&str], text: &str) -> Child {
        let mut command = self.as_operator(shell);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(format!("{}{text}\n", self.prelude).as_bytes()).unwrap();
        child
    }

    /// A program that runs as whoever types, in their environment.
    pub(crate) fn as_operator<A: AsRef<OsStr>>(&self, program: &[A]) -> Command {
        let mut command = Command::new("/usr/bin/unshare");
        command.env_clear().args(["--mount", "/bin/sh", "-c"]);
        command.arg(r#"/usr/bin/mount --bind "$0" /etc/sudoers && exec "$@""#).arg(self.path("sudoers"));
        if self.who == Who::User {
            let user = USER.to_string();
            command.args(["/usr/bin/setpriv", "--clear-groups", "--reuid", &user, "--regid", &user, "--"]);
        }
        command.args(program).current_dir("/");
        command.env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()));
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp")).envs(&self.environment);
        command
    }
}

pub(crate) struct Started {
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) input: String,
    /// Its number.
    pub(crate) user: String,
}

/// The command that makes a host a node, with this installer from that server.
pub(crate) fn install(server: &Server, installer: &[u8]) -> String {
    let wanted = Install {
        installer_sha256: &Digest::of(installer).to_string(),
        source_url: &server.origin(),
        core_url: "https://core.example",
        installation_id: ID,
        token: TOKEN,
    };
    palisade_core::install::install(&wanted).unwrap()
}

/// The command that removes it again.
pub(crate) fn uninstall(server: &Server, installer: &[u8]) -> String {
    let wanted = Uninstall {
        installer_sha256: &Digest::of(installer).to_string(),
        source_url: &server.origin(),
        installation_id: ID,
    };
    palisade_core::install::uninstall(&wanted).unwrap()
}

/// Ends as it should, or shows why not.
pub(crate) fn expect(output: &Output, status: i32, shell: &[&str]) {
    assert_eq!(output.status.code(), Some(status), "{shell:?}: {}", said(output));
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
