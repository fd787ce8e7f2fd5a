use palisade_microsandbox::{Image, MsbError};

use super::lab::{HEX, Lab, answer, entry, image, text};

const OTHER: &str = "0000000000000000000000000000000000000000000000000000000000000001";

fn list(entries: &[String]) -> String {
    format!("[{}]", entries.join(","))
}

/// E34. That an image is not there is the word of a whole list; what is there under its name must be it.
#[tokio::test]
async fn an_image_is_there_absent_or_foreign() {
    let (lab, other) = (Lab::new(), entry("oac-runtime:1", OTHER));
    lab.write("image-list", &list(&[other.clone(), answer()]));
    assert_eq!(lab.msb().image(&image()).await.unwrap(), Image::There);
    lab.write("image-inspect", &answer().replace("amd64", "arm64"));
    assert_eq!(lab.msb().image(&image()).await.unwrap(), Image::Foreign, "the inspection has the last word");
    lab.write("image-list", &list(&[entry(&image().to_string(), OTHER)]));
    assert_eq!(lab.msb().image(&image()).await.unwrap(), Image::Foreign);
    lab.write("image-list", &list(&[other]));
    assert_eq!(lab.msb().image(&image()).await.unwrap(), Image::Absent);
    for unknown in ["", "{}", "[", "image not found"] {
        lab.write("image-list", unknown);
        assert!(matches!(lab.msb().image(&image()).await, Err(MsbError::Malformed("images"))), "{unknown}");
    }
    lab.write("image-list", "[]");
    lab.write("image-list-status", "3");
    assert!(matches!(lab.msb().image(&image()).await, Err(MsbError::Refused(3))), "a failure is no absence");
    lab.remove("msb");
    assert!(matches!(lab.msb().image(&image()).await, Err(MsbError::Start { .. })), "and neither is a missing program");
}

/// H 132. The inventory is whole or unknown.
#[tokio::test]
async fn an_inventory_is_whole_or_unknown() {
    let lab = Lab::new();
    lab.write("image-list", &list(&[answer(), entry("oac-runtime:9ba4f2d09aa2", HEX), entry("other:2", OTHER)]));
    let named: Vec<_> = lab.msb().inventory().await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(named, [image().to_string(), image().to_string(), format!("other@sha256:{OTHER}")]);
    for wrong in [entry("latest", "latest"), entry(&image().to_string(), OTHER), "{}".to_owned()] {
        lab.write("image-list", &list(&[answer(), wrong]));
        assert!(matches!(lab.msb().inventory().await, Err(MsbError::Malformed("images"))));
    }
    lab.write("sandbox-list", "[]\n");
    assert!(!lab.msb().has_sandboxes().await.unwrap());
    lab.write("sandbox-list", "[{\"name\":\"oac-1-g0\"}]");
    assert!(lab.msb().has_sandboxes().await.unwrap());
    lab.write("sandbox-list", "no sandboxes");
    assert!(matches!(lab.msb().has_sandboxes().await, Err(MsbError::Malformed("sandboxes"))));
}

/// H 138. An image goes under all of its names and no other does; the pinned name is the last one.
#[tokio::test]
async fn an_image_goes_under_all_of_its_names() {
    let lab = Lab::new();
    lab.write("image-list", &list(&[answer(), entry("oac-runtime:9ba4f2d09aa2", HEX), entry("other:2", OTHER)]));
    assert!(lab.msb().remove(&image()).await.unwrap());
    let asked = lab.read("calls");
    let removed: Vec<_> = asked.lines().filter(|line| line.starts_with("image remove")).collect();
    let expected = ["oac-runtime:9ba4f2d09aa2".to_owned(), image().to_string()];
    assert_eq!(removed, expected.map(|name| format!("image remove {name} --quiet")));

    lab.write("image-remove-status", "1");
    assert!(!lab.msb().remove(&image()).await.unwrap(), "something uses it");
    lab.write("image-list", "[]");
    assert!(lab.msb().remove(&image()).await.unwrap(), "nothing is left to remove");
}

/// An archive is loaded under the pinned name, and a refusal is one.
#[tokio::test]
async fn an_archive_is_loaded_under_the_pinned_name() {
    let lab = Lab::new();
    let archive = lab.path("runtime.tar");
    lab.msb().load(&archive, &image()).await.unwrap();
    assert_eq!(lab.read("calls"), format!("image load --input {} --tag {} --quiet\n", text(&archive), image()));
    lab.write("image-load-status", "1");
    assert!(matches!(lab.msb().load(&archive, &image()).await, Err(MsbError::Refused(1))));
}

/// A program that does not end is not waited for without end.
#[tokio::test(start_paused = true)]
async fn a_program_has_its_time() {
    let lab = Lab::new();
    lab.script("msb", "#!/bin/sh\nexec sleep 600\n");
    assert!(matches!(lab.msb().inventory().await, Err(MsbError::TimedOut(_))));
}

/// A program that says too much is ended.
#[tokio::test]
async fn a_program_that_says_too_much_is_ended() {
    let lab = Lab::new();
    lab.script("msb", "#!/bin/sh\nexec cat /dev/zero\n");
    assert!(matches!(lab.msb().inventory().await, Err(MsbError::TooMuch(_))));
    lab.script("msb", "#!/bin/sh\nkill -9 $$\n");
    assert!(matches!(lab.msb().inventory().await, Err(MsbError::Killed)));
}
