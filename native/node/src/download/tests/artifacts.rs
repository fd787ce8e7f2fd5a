//! One artifact over bad networks.

use std::os::unix::fs::PermissionsExt as _;

use super::server::End;
use super::*;

const V1: &str = "\"v1\"";
const V2: &str = "\"v2\"";

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

/// H 1. The first download is verified and gets its mode; the second asks nobody; a changed file refuses without a request.
#[tokio::test]
async fn a_whole_file_is_verified_once_and_kept() {
    let bytes = content(100_000);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| Answer::good(asked, &served, V1)).await;
    lab.fetch(&program(&bytes)).await.unwrap();
    assert_eq!(lab.bytes(PROGRAM), bytes);
    assert_eq!(mode(&lab.path(PROGRAM)), 0o700);
    assert_eq!(lab.files(), [PROGRAM], "no part is left");
    let expected = format!("/node-install/releases/{}/artifacts/oac-{0}-linux-amd64-sandbox-node", commit());
    assert_eq!(lab.server.paths(), [expected]);

    lab.fetch(&program(&bytes)).await.unwrap();
    let image = wanted("images/runtime.tar.gz", Role::Image, "runtime.tar.gz", &bytes);
    lab.fetch(&image).await.unwrap();
    assert_eq!(mode(&lab.path("images/runtime.tar.gz")), 0o600);
    assert_eq!(lab.server.paths().len(), 2);

    lab.put(PROGRAM, 0o700, b"other");
    assert!(matches!(lab.fetch(&program(&bytes)).await, Err(DownloadError::Conflict(_))));
    assert_eq!((lab.bytes(PROGRAM), lab.server.paths().len()), (b"other".to_vec(), 2));
}

/// H 2. One request, no file, no part.
#[tokio::test]
async fn a_wrong_digest_installs_nothing_and_is_not_retried() {
    let bytes = content(1000);
    let lab = Lab::new(move |asked| Answer::good(asked, &vec![7; 1000], V1)).await;
    let refused = lab.fetch(&program(&bytes)).await.unwrap_err();
    assert!(matches!(refused, DownloadError::Mismatch(_)) && refused.is_transfer(), "{refused}");
    assert_eq!((lab.files(), lab.server.paths().len()), (vec![], 1));
}

/// H 3. Three requests, then a refusal that names the status. H 4. What time does not mend is asked once.
#[tokio::test]
async fn only_a_transient_status_is_asked_again() {
    for (status, requests) in [(503, 3), (500, 3), (429, 3), (403, 1), (401, 1), (404, 1), (410, 1), (204, 1)] {
        let lab = Lab::new(move |_| Answer::new(status).length(0)).await;
        let refused = lab.fetch(&program(b"x")).await.unwrap_err();
        assert!(refused.to_string().contains(&status.to_string()), "{refused}");
        assert_eq!((lab.server.paths().len(), lab.path(PROGRAM).exists()), (requests, false), "{status}");
    }
    assert_eq!(Pace::PATIENT.pauses, [Duration::from_secs(1), Duration::from_secs(2)]);
    assert_eq!((Pace::PATIENT.stall, crate::limits::STALL_BYTES), (Duration::from_secs(60), 65_536));
}

/// H 6. The retry asks for the rest of the same version and completes the file.
#[tokio::test]
async fn a_cut_transfer_is_completed_by_range() {
    let bytes = content(300_000);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| match asked.number {
        0 => Answer::good(asked, &served, V1).cut(120_000),
        _ => Answer::good(asked, &served, V1),
    })
    .await;
    lab.fetch(&program(&bytes)).await.unwrap();
    assert_eq!(lab.bytes(PROGRAM), bytes);
    let asked = lab.server.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!((asked[0].header("range"), asked[0].header("if-range")), (None, None));
    assert_eq!((asked[1].from(), asked[1].header("if-range")), (120_000, Some(V1)));
}

/// H 5. Transfers that end early refuse as interrupted and keep the part; a rerun leaves the target alone.
#[tokio::test]
async fn an_interrupted_download_is_finished_by_a_rerun() {
    let bytes = content(300_000);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| match asked.number {
        0..3 => Answer::good(asked, &served, V1).cut(50_000),
        _ => Answer::good(asked, &served, V1),
    })
    .await;
    let refused = lab.fetch(&program(&bytes)).await.unwrap_err();
    assert!(matches!(refused, DownloadError::Interrupted { kept: 150_000, .. }), "{refused}");
    assert_eq!(Downloader::unfinished(&[program(&bytes)], &lab.root()), 150_000);
    assert!(!lab.path(PROGRAM).exists());
    lab.fetch(&program(&bytes)).await.unwrap();
    assert_eq!((lab.bytes(PROGRAM), lab.files()), (bytes, vec![PROGRAM.to_owned()]));
    assert_eq!(lab.server.asked().last().unwrap().from(), 150_000);
}

/// A network that cuts every few seconds brings a large file all the same, as long as each attempt brings a good piece.
#[tokio::test]
async fn attempts_that_bring_a_good_piece_do_not_count() {
    let bytes = content(12 << 20);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| Answer::good(asked, &served, V1).cut(1_100_000)).await;
    lab.fetch(&program(&bytes)).await.unwrap();
    assert!(lab.bytes(PROGRAM) == bytes && lab.server.asked().len() > 10);
}

/// H 13. A server that cannot resume gives the whole file again, and one that cuts it each time is given up.
#[tokio::test]
async fn a_server_that_ignores_the_range_restarts_the_file() {
    let bytes = content(4 << 20);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| match asked.number {
        0 => Answer::whole(&served, V1).cut(2 << 20),
        _ => Answer::whole(&served, V1),
    })
    .await;
    lab.fetch(&program(&bytes)).await.unwrap();
    assert!(lab.bytes(PROGRAM) == bytes && lab.server.asked()[1].from() == 2 << 20);

    let served = bytes.clone();
    let lab = Lab::new(move |_| Answer::whole(&served, V1).cut(2 << 20)).await;
    assert!(matches!(lab.fetch(&program(&bytes)).await, Err(DownloadError::Interrupted { .. })));
    assert!(lab.server.asked().len() <= 4, "{} requests", lab.server.asked().len());
}

/// A server that names no version cannot be resumed: nobody could say what the rest is of.
#[tokio::test]
async fn a_part_of_no_version_is_not_resumed() {
    let bytes = content(200_000);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| {
        let mut answer = Answer::whole(&served, V1);
        answer.headers.retain(|(name, _)| *name != "etag");
        if asked.number == 0 { answer.cut(100_000) } else { answer }
    })
    .await;
    lab.fetch(&program(&bytes)).await.unwrap();
    assert_eq!(lab.bytes(PROGRAM), bytes);
    assert_eq!(lab.server.asked()[1].header("range"), None);
}

/// The content changes between two attempts: the server says so, or sends another version's range, or mixes both up.
#[tokio::test]
async fn content_that_changes_between_attempts_is_never_mixed() {
    let (old, new) = (vec![1; 200_000], content(200_000));
    for lie in 0..4 {
        let (old, served) = (old.clone(), new.clone());
        let lab = Lab::new(move |asked| match (asked.number, lie) {
            (0, _) => Answer::whole(&old, V1).cut(100_000),
            (1, 0) => Answer::good(asked, &served, V2),
            (1, 1) => Answer::part(&served, asked.from(), V2),
            (1, 2) => Answer::part(&served, asked.from(), V1),
            (1, 3) => Answer::part(&served, 99_999, V1),
            _ => Answer::whole(&served, V2),
        })
        .await;
        lab.fetch(&program(&new)).await.unwrap();
        assert!(lab.bytes(PROGRAM) == new, "lie {lie}");
        assert_eq!(lab.files(), [PROGRAM], "lie {lie}");
    }
}

#[tokio::test]
async fn a_range_that_the_server_does_not_have_discards_the_part() {
    let bytes = content(1000);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| match asked.from() {
        0 => Answer::whole(&served, V2),
        _ => Answer::new(416).with("content-range", "bytes */10").length(0),
    })
    .await;
    lab.put_part(&bytes[..500], Some(V1));
    lab.fetch(&program(&bytes)).await.unwrap();
    assert_eq!((lab.bytes(PROGRAM), lab.server.asked().len()), (bytes, 2));
}

/// H 7. Hardly anything in the window: one request, no retry, and the part is kept and resumed.
#[tokio::test]
async fn a_stalled_download_stops_and_keeps_its_part() {
    let bytes = content(200_000);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| match asked.number {
        0 => Answer::good(asked, &served, V1).cut(150_000).then(End::Hang),
        1 => Answer::new(200).then(End::Hang),
        _ => Answer::good(asked, &served, V1),
    })
    .await;
    let refused = lab.fetch(&program(&bytes)).await.unwrap_err();
    assert!(matches!(refused, DownloadError::Stalled { kept: 150_000, .. }), "{refused}");
    assert_eq!((lab.server.asked().len(), lab.bytes(PART).len()), (1, 150_000));
    // A head without a body restarts the file, and is not waited for either.
    assert!(matches!(lab.fetch(&program(&bytes)).await, Err(DownloadError::Stalled { kept: 0, .. })));
    lab.fetch(&program(&bytes)).await.unwrap();
    assert_eq!(lab.bytes(PROGRAM), bytes);
}

/// More than declared is not taken: neither announced, nor without end, nor after an honest beginning.
#[tokio::test]
async fn a_body_that_is_too_long_is_not_taken() {
    let bytes = content(1000);
    let longer = [&bytes[..], b"x"].concat();
    let cases: [Answer; 4] = [
        Answer::whole(&longer, V1),
        Answer::new(200).with("etag", V1).body(&longer),
        Answer::new(200).then(End::Flood),
        Answer::new(200).with("etag", V1).length(1 << 40).then(End::Flood),
    ];
    for (case, answer) in cases.into_iter().enumerate() {
        let lab = Lab::new(move |_| answer.clone()).await;
        let refused = lab.fetch(&program(&bytes)).await.unwrap_err();
        assert!(matches!(refused, DownloadError::TooLong(_)), "{case}: {refused}");
        assert_eq!((lab.files(), lab.server.asked().len()), (vec![], 1), "{case}");
    }
}

/// A server that announces less than the file has, or ends early without having announced anything.
#[tokio::test]
async fn a_body_that_is_too_short_is_never_taken_for_the_file() {
    let bytes = content(1000);
    let cases = [Answer::whole(&bytes[..999], V1), Answer::new(200).body(&bytes[..999]), Answer::whole(&[], V1)];
    for answer in cases {
        let lab = Lab::new(move |_| answer.clone()).await;
        let refused = lab.fetch(&program(&bytes)).await.unwrap_err();
        assert!(matches!(refused, DownloadError::Interrupted { .. }), "{refused}");
        assert!(!lab.path(PROGRAM).exists());
    }
}

#[tokio::test]
async fn a_source_that_nobody_answers_at_is_unreachable() {
    let lab = Lab::new(|_| Answer::new(200)).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let downloader = lab.downloader_of(Source::console(&origin).unwrap());
    let refused = downloader.fetch(&[program(b"x")], &lab.root(), &lab.cancel, &mut Silent).await.unwrap_err();
    assert!(matches!(refused, DownloadError::Unreachable { .. }), "{refused}");
    assert!(!refused.to_string().contains("127.0.0.1"), "{refused}");
}

/// H 9. Whatever a killed download left, only the declared bytes get the file's name.
#[tokio::test]
async fn a_part_is_never_taken_for_the_file_unverified() {
    let bytes = content(1000);
    let whole_of_another = vec![1; 1000];
    let longer = vec![2; 1001];
    let cases: [(&[u8], Option<&str>, usize); 7] = [
        (&bytes, Some(V1), 0),
        (&bytes, None, 0),
        (&whole_of_another, Some(V1), 1),
        (&longer, Some(V1), 1),
        (&whole_of_another[..500], Some(V1), 2),
        (&bytes[..500], Some("not what a server says\n"), 1),
        (&bytes[..500], None, 1),
    ];
    for (number, (part, version, requests)) in cases.into_iter().enumerate() {
        let served = bytes.clone();
        let lab = Lab::new(move |asked| Answer::good(asked, &served, V1)).await;
        lab.put_part(part, version);
        lab.fetch(&program(&bytes)).await.unwrap();
        assert_eq!((lab.bytes(PROGRAM), lab.files()), (bytes.clone(), vec![PROGRAM.to_owned()]), "{number}");
        assert_eq!(lab.server.asked().len(), requests, "{number}");
    }
}

/// H 11. What is not ours, or leads elsewhere, is refused before a request, and stays.
#[tokio::test]
async fn links_and_foreign_files_are_refused() {
    let bytes = content(1000);
    let kinds = [
        ("link", (|path| std::os::unix::fs::symlink("/etc/passwd", path).unwrap()) as fn(&Path)),
        ("directory", |path| std::fs::create_dir(path).unwrap()),
        ("pipe", |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap()),
    ];
    for (kind, make) in kinds {
        for name in [PROGRAM, PART, "native/bin/.oac-node.partial.validator"] {
            let lab = Lab::new(|_| Answer::new(200).length(0)).await;
            lab.put("native/bin/other", 0o600, b"");
            make(&lab.path(name));
            let refused = lab.fetch(&program(&bytes)).await.unwrap_err();
            assert!(!refused.is_transfer(), "{kind} {name}: {refused}");
            assert_eq!(lab.server.asked().len(), 0, "{kind} {name}");
            assert!(lab.path(name).symlink_metadata().is_ok(), "{kind} {name} stays");
        }
    }
    let lab = Lab::new(|_| Answer::new(200).length(0)).await;
    std::os::unix::fs::symlink("/tmp", lab.path("native")).unwrap();
    assert!(matches!(lab.fetch(&program(&bytes)).await, Err(DownloadError::File(_))));
    let lab = Lab::new(|_| Answer::new(200).length(0)).await;
    lab.put(PROGRAM, 0o755, &bytes);
    assert!(matches!(lab.fetch(&program(&bytes)).await, Err(DownloadError::File(_))), "open to others");
    assert_eq!(lab.server.asked().len(), 0);
}

/// All that is there is verified before the first byte of what is missing is asked for.
#[tokio::test]
async fn a_conflict_anywhere_prevents_every_request() {
    let bytes = content(1000);
    let lab = Lab::new(|_| Answer::new(200).length(0)).await;
    let image = wanted("images/runtime.tar.gz", Role::Image, "runtime.tar.gz", &bytes);
    lab.put("images/runtime.tar.gz", 0o600, b"other");
    let files = [program(&bytes), image];
    let refused = lab.downloader().fetch(&files, &lab.root(), &lab.cancel, &mut Silent).await.unwrap_err();
    assert!(matches!(&refused, DownloadError::Conflict(path) if path.ends_with("runtime.tar.gz")), "{refused}");
    assert!(refused.is_transfer());
    assert_eq!((lab.files(), lab.server.asked().len()), (vec!["images/runtime.tar.gz".to_owned()], 0));
}

/// E37. A node program that is there is never replaced: no download updates the agent, and the file of before stays.
#[tokio::test]
async fn the_program_of_before_stays_whatever_the_source_offers() {
    let (before, offered) = (content(1000), content(2000));
    let served = offered.clone();
    let lab = Lab::new(move |asked| Answer::good(asked, &served, V1)).await;
    lab.put(PROGRAM, 0o700, &before);
    for _ in 0..2 {
        let refused = lab.fetch(&program(&offered)).await.unwrap_err();
        assert!(refused.to_string().contains("it is not overwritten"), "{refused}");
    }
    assert_eq!((lab.bytes(PROGRAM), lab.server.asked().len()), (before, 0));
}

/// Cancels once everything that comes is there.
struct Watch(CancellationToken);
impl Progress for Watch {
    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        if matches!(event, Event::Advanced { bytes: 400_000, .. }) {
            self.0.cancel();
        }
        Ok(())
    }
}

/// A cancelled download leaves its part at rest, which the next one continues.
#[tokio::test]
async fn a_cancelled_download_keeps_its_part() {
    let bytes = content(1_000_000);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| match asked.number {
        0 => Answer::good(asked, &served, V1).cut(400_000).then(End::Hang),
        _ => Answer::good(asked, &served, V1),
    })
    .await;
    let refused = lab.fetch_heard(&program(&bytes), &mut Watch(lab.cancel.clone())).await.unwrap_err();
    assert!(matches!(refused, DownloadError::Cancelled) && !refused.is_transfer(), "{refused}");
    assert_eq!(lab.bytes(PART), bytes[..400_000]);
    let downloader = lab.downloader();
    downloader.fetch(&[program(&bytes)], &lab.root(), &CancellationToken::new(), &mut Silent).await.unwrap();
    assert!(lab.bytes(PROGRAM) == bytes && lab.server.asked()[1].from() == 400_000);
}

#[tokio::test]
async fn progress_is_told_and_a_closed_pipe_stops_the_download() {
    let bytes = content(100_000);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| Answer::good(asked, &served, V1)).await;
    let mut gone = Heard { fail_after: Some(2), ..Heard::default() };
    let refused = lab.fetch_heard(&program(&bytes), &mut gone).await.unwrap_err();
    assert!(matches!(refused, DownloadError::Unwatched(_)) && !lab.path(PROGRAM).exists(), "{refused}");
    let mut heard = Heard::default();
    lab.fetch_heard(&program(&bytes), &mut heard).await.unwrap();
    let events = heard.events.into_inner().unwrap();
    assert_eq!((events.first().unwrap().as_str(), events.last().unwrap().as_str()), ("Started", "Finished"));
    let mut again = Heard::default();
    lab.fetch_heard(&program(&bytes), &mut again).await.unwrap();
    assert_eq!(again.events.into_inner().unwrap(), ["Kept"]);
}

/// H 11. E33. A part with a second name is somebody's file: nothing is written to it, and nothing is asked for.
#[tokio::test]
async fn a_part_with_two_names_is_refused() {
    let bytes = content(1000);
    let served = bytes.clone();
    let lab = Lab::new(move |asked| Answer::good(asked, &served, V1)).await;
    lab.put_part(b"of somebody", None);
    let other = lab.home.path().join("other");
    std::fs::hard_link(lab.path(PART), &other).unwrap();
    for _ in 0..2 {
        let refused = lab.fetch(&program(&bytes)).await.unwrap_err();
        assert!(refused.to_string().contains("one name") && !refused.is_transfer(), "{refused}");
        assert_eq!((std::fs::read(&other).unwrap(), lab.server.asked().len()), (b"of somebody".to_vec(), 0));
    }
    std::fs::remove_file(lab.path(PART)).unwrap();
    lab.fetch(&program(&bytes)).await.unwrap();
    assert_eq!(std::fs::read(&other).unwrap(), b"of somebody");
}
