//! A host for tests: a release with scripted programs, a store, a device, and a lease.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::specification::Specification;
use palisade_core::microsandbox::image::ImageReference;
use palisade_core::microsandbox::native::Context;
use palisade_core::units::{Digest, Generation, Id};
use palisade_microsandbox::{
    Configuration, Helpers, LeaseUnavailable, Leases, Machine, MicrosandboxHost, Msb, Refused,
};
use serde_json::json;
use tempfile::TempDir;

/// The digest of the release's image.
pub(crate) const HEX: &str = "22860558310f5671c6c8a595156ac37f5d03940d4d4a768e1b56c91fc144f696";

/// `msb` that notes what it is asked and with which environment, and answers what stands in files: `<verb>` its output,
/// `<verb>-status` its exit status.
const MSB: &str = r#"#!/bin/sh
here=${0%/*}
printf '%s\n' "$*" >> "$here/calls"
tr '\0' '\n' < /proc/$$/environ > "$here/environment"
[ -e "$here/$1-$2" ] && cat "$here/$1-$2"
[ -e "$here/$1-$2-status" ] && exit "$(cat "$here/$1-$2-status")"
exit 0
"#;

pub(crate) struct Lab {
    _folder: TempDir,
    root: PathBuf,
}

/// Opens the lab's lease as a node does, without its checks.
struct Lease(PathBuf);

impl Leases for Lease {
    fn shared(&self) -> Result<File, LeaseUnavailable> {
        let file = File::options().read(true).write(true).open(&self.0).map_err(|_| LeaseUnavailable)?;
        file.try_lock_shared().map_err(|_| LeaseUnavailable)?;
        Ok(file)
    }
}

impl Lab {
    /// Everything is there and in order.
    pub(crate) fn new() -> Self {
        // A store's path has at most 48 bytes.
        let folder = tempfile::Builder::new().prefix("m").rand_bytes(5).tempdir_in("/tmp").unwrap();
        let lab = Self { root: folder.path().to_owned(), _folder: folder };
        for private in ["state", ".oac", ".oac/m", ".oac/m/0123456789ab"] {
            std::fs::create_dir(lab.path(private)).unwrap();
            lab.set_mode(private, 0o700);
        }
        lab.write("kvm", "");
        lab.write("lease", "");
        lab.write("firmware", "a firmware");
        lab.script("msb", MSB);
        lab.script("helper", "#!/bin/sh\nprintf '{\"Version\":3}'\n");
        lab.write("image-inspect", &answer());
        lab
    }

    /// The lab that another process made.
    pub(crate) fn open(root: &str) -> Self {
        Self { _folder: tempfile::tempdir().unwrap(), root: PathBuf::from(root) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path(".oac/m/0123456789ab")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    pub(crate) fn set_mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
    }

    /// Writes a program through another process: one that this process has open for writing while another thread starts
    /// something cannot be run for a moment.
    pub(crate) fn script(&self, name: &str, text: &str) {
        let mut writer = Command::new("/bin/sh");
        writer.args(["-c", "rm -f \"$0\"; cat > \"$0\" && chmod 700 \"$0\""]).arg(self.path(name));
        let mut writer = writer.stdin(Stdio::piped()).spawn().unwrap();
        writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
    }

    /// A helper that runs these lines; `$here` is the lab.
    pub(crate) fn helper(&self, lines: &str) {
        self.script("helper", &format!("#!/bin/sh\nhere={}\n{lines}\n", self.root.display()));
    }

    pub(crate) fn native(&self) -> serde_json::Value {
        json!({
            "helper_path": self.path("helper"), "runtime_path": self.path("msb"),
            "firmware_path": self.path("firmware"), "runtime_home": self.store(),
            "network": {"default_egress": "deny", "default_ingress": "deny", "rules": []},
        })
    }

    fn specification() -> Specification {
        let hex = |text: &str| Digest::of(text.as_bytes()).to_string();
        let text = json!({
            "resources": {"cpus": 2, "memory_mib": 1024, "root_disk_mib": 2048, "environment_disk_mib": 4096},
            "runtime": {
                "source_commit": "a".repeat(40), "image_id": format!("sha256:{}", hex("image")),
                "image_manifest_digest": format!("sha256:{HEX}"), "microsandbox_ref": image().to_string(),
                "runtime_sha256": hex(MSB), "firmware_sha256": hex("a firmware"),
            },
        });
        Specification::parse(Provider::Microsandbox, text.to_string().as_bytes()).unwrap()
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine { kvm: self.path("kvm"), cpus: 2, memory_bytes: 1 << 30 }
    }

    pub(crate) fn construct(&self, context: Context<'_>, machine: Machine) -> Result<MicrosandboxHost, Refused> {
        let configuration = Configuration {
            installation: Id::from_random([1; 16]),
            generation: Generation::FIRST,
            specification: &Self::specification(),
            native: &self.native().to_string(),
            context,
        };
        MicrosandboxHost::new(configuration, machine)
    }

    pub(crate) fn generation(&self) -> MicrosandboxHost {
        let state = self.path("state");
        self.construct(Context::Generation { state: state.to_str().unwrap() }, self.machine()).unwrap()
    }

    pub(crate) fn msb(&self) -> Msb {
        Msb::new(&self.path("msb"), &self.path("firmware"), &self.store())
    }

    /// The helpers of a node that has this environment.
    pub(crate) fn helpers_with(&self, environment: &[(&str, &str)]) -> Helpers {
        let lease: Arc<dyn Leases> = Arc::new(Lease(self.path("lease")));
        let has = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let host = self.construct(Context::Standalone, self.machine()).unwrap();
        host.helpers(Some(lease), has)
    }

    pub(crate) fn helpers(&self) -> Helpers {
        self.helpers_with(&[("PATH", "/usr/bin:/bin")])
    }

    /// Whether nobody has the lease.
    pub(crate) fn is_free(&self) -> bool {
        File::open(self.path("lease")).unwrap().try_lock().is_ok()
    }
}

pub(crate) fn image() -> ImageReference {
    ImageReference::parse(&format!("oac-runtime@sha256:{HEX}")).unwrap()
}

/// What `msb` says of the release's image.
pub(crate) fn answer() -> String {
    entry(&image().to_string(), HEX)
}

pub(crate) fn entry(reference: &str, hex: &str) -> String {
    json!({
        "architecture": "amd64", "created_at": "2026-11-30T08:11:52.646819699+00:00", "digest": format!("sha256:{hex}"),
        "layer_count": 1, "os": "linux", "reference": reference, "size_bytes": 3_215_872,
    })
    .to_string()
}

/// Waits, however long that is, until something is so.
pub(crate) async fn until(so: impl Fn() -> bool) {
    while !so() {
        tokio::task::yield_now().await;
    }
}

/// The folder of a lab, for a path in a message.
pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
