//! Disks without room, and downloads that are killed.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use super::server::End;
use super::*;
use crate::limits::{DISK_RESERVE_BYTES, DISK_RESERVE_INODES, ROOM_CHECK_BYTES};

const V1: &str = "\"v1\"";

/// E33. Bytes and inodes are looked at before the first request; what an earlier download left counts as there.
#[tokio::test]
async fn without_room_nothing_is_asked() {
    let bytes = content(10_000);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| Answer::good(asked, &served, V1)).await;
    let enough = 10_000 + DISK_RESERVE_BYTES;
    for (free, inodes) in [(enough - 1, u64::MAX), (u64::MAX, DISK_RESERVE_INODES)] {
        lab.room.bytes.store(free, Ordering::SeqCst);
        lab.room.inodes.store(inodes, Ordering::SeqCst);
        let refused = lab.fetch(&program(&bytes)).await.unwrap_err();
        assert!(matches!(refused, DownloadError::NoRoom { .. }) && !refused.is_transfer(), "{refused}");
        assert_eq!((lab.server.asked().len(), lab.files()), (0, vec![]));
    }
    lab.room.bytes.store(enough - 4000, Ordering::SeqCst);
    lab.room.inodes.store(u64::MAX, Ordering::SeqCst);
    assert!(lab.fetch(&program(&bytes)).await.is_err());
    lab.put_part(&bytes[..4000], Some(V1));
    lab.fetch(&program(&bytes)).await.unwrap();
    assert_eq!(lab.bytes(PROGRAM), bytes);
}

/// E33. An image needs the room of its import as well.
#[tokio::test]
async fn an_import_needs_room_too() {
    let bytes = content(1000);
    let lab = Lab::new(|_| Answer::new(500).length(0)).await;
    let image = Wanted { import_bytes: 5000, ..wanted("images/runtime.tar.gz", Role::Image, "runtime.tar.gz", &bytes) };
    lab.room.bytes.store(5999 + DISK_RESERVE_BYTES, Ordering::SeqCst);
    assert!(matches!(lab.fetch(&image).await, Err(DownloadError::NoRoom { .. })));
    lab.room.bytes.store(6000 + DISK_RESERVE_BYTES, Ordering::SeqCst);
    assert!(matches!(lab.fetch(&image).await, Err(DownloadError::Status { .. })));
}

/// Somebody else fills the disk once the download is under way.
struct Other(Arc<Room>);
impl Progress for Other {
    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        if matches!(event, Event::Advanced { .. }) {
            self.0.bytes.store(DISK_RESERVE_BYTES, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// E33. The room is looked at while bytes come; a download that would fill the disk stops, and gives back what it took.
#[tokio::test]
async fn a_disk_that_fills_meanwhile_gets_its_room_back() {
    let bytes = content(2 * usize::try_from(ROOM_CHECK_BYTES).unwrap());
    let served = bytes.clone();
    let lab = Lab::new(move |asked| Answer::good(asked, &served, V1)).await;
    let refused = lab.fetch_heard(&program(&bytes), &mut Other(Arc::clone(&lab.room))).await.unwrap_err();
    assert!(matches!(refused, DownloadError::NoRoom { .. }), "{refused}");
    assert_eq!(lab.files(), Vec::<String>::new(), "everything is given back");
    lab.room.bytes.store(u64::MAX, Ordering::SeqCst);
    lab.fetch(&program(&bytes)).await.unwrap();
    assert!(lab.bytes(PROGRAM) == bytes);
}

/// Where a child of a test finds what it shall do.
const CHILD_ROOT: &str = "PALISADE_TEST_DOWNLOAD_ROOT";
const CHILD_ORIGIN: &str = "PALISADE_TEST_DOWNLOAD_ORIGIN";
const CHILD_BYTES: usize = 3_000_000;

/// Not a test of its own: the download of another process, for the tests below. Prints its refusal.
#[tokio::test]
async fn child() {
    let (Ok(root), Ok(origin)) = (std::env::var(CHILD_ROOT), std::env::var(CHILD_ORIGIN)) else { return };
    let lab = Lab::new(|_| Answer::new(500)).await;
    let downloader = lab.downloader_of(Source::console(&origin).unwrap());
    let fetched = downloader.fetch(&[program(&content(CHILD_BYTES))], Path::new(&root), &lab.cancel, &mut Silent).await;
    println!("child: {fetched:?}");
}

fn child_command(wrapper: &[&str], root: &Path, origin: &str) -> Command {
    let own = std::env::current_exe().unwrap();
    let test = ["--exact", "download::tests::disk::child", "--nocapture"];
    let mut command = match wrapper {
        [] => Command::new(&own),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(&own);
            command
        }
    };
    command.args(test).env(CHILD_ROOT, root).env(CHILD_ORIGIN, origin);
    command
}

/// H 9. A download that is killed with SIGKILL leaves a part, which the next one continues; no file is there meanwhile.
#[tokio::test]
async fn a_killed_download_goes_on_where_it_was() {
    let bytes = content(CHILD_BYTES);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| match asked.number {
        0 => Answer::good(asked, &served, V1).cut(2_000_000).then(End::Hang),
        _ => Answer::good(asked, &served, V1),
    })
    .await;
    let mut child = child_command(&[], &lab.root(), &lab.server.origin).spawn().unwrap();
    while Downloader::unfinished(&[program(&bytes)], &lab.root()) < 2_000_000 {
        assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
        tokio::task::yield_now().await;
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(!lab.path(PROGRAM).exists());
    lab.fetch(&program(&bytes)).await.unwrap();
    assert!(lab.bytes(PROGRAM) == bytes && lab.server.asked()[1].from() == 2_000_000);
    assert_eq!(lab.files(), [PROGRAM]);
}

/// E33. A real full disk, in bytes and in inodes: nothing of the file stays, and freeing room lets the same call finish.
///
/// Each row is a file system of its own, mounted where nobody else sees it.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_releases_what_it_stopped() {
    let bytes = content(CHILD_BYTES);
    for limit in ["size=2m", "nr_inodes=4"] {
        let served = bytes.clone();
        let lab = Lab::new(move |asked| Answer::good(asked, &served, V1)).await;
        let root = lab.root();
        let script = format!(
            "set -e; mount -t tmpfs -o {limit},mode=700 none {root}; \
             first=$(\"$@\" | grep '^child:'); echo \"first $first\"; echo \"left $(find {root} -type f | wc -l)\"; \
             mount -o remount,size=16m,nr_inodes=100 {root}; \
             second=$(\"$@\" | grep '^child:'); echo \"second $second\"; sha256sum {root}/{PROGRAM}",
            root = root.display()
        );
        let wrapper = ["unshare", "-rm", "sh", "-c", &script, "sh"];
        let mut command = child_command(&wrapper, &root, &lab.server.origin);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{limit}: {said}{why}");
        assert!(said.contains("first child: Err(Disk {") || said.contains("first child: Err(File("), "{limit}: {said}");
        assert!(said.contains("left 0\n") && said.contains("second child: Ok(())"), "{limit}: {said}");
        assert!(said.contains(&Digest::of(&bytes).to_string()), "{limit}: {said}");
    }
}
