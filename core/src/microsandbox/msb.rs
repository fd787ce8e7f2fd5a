//! What the pinned `msb` program prints, as version 0.7.2 was seen to (node-host §3.8, §8.9, §8.10).
//!
//! | Call | Seen |
//! | --- | --- |
//! | `image inspect REF --format json` | one indented object: `architecture` `"amd64"`, `config`, `created_at`, `digest` `"sha256:…"` of the manifest, `layer_count`, `layers`, `os` `"linux"`, `reference`, `size_bytes`. An unknown image: exit 1, nothing on stdout |
//! | `image list --quiet` | one name per line, each line ended; nothing for an empty store, also for one that does not exist and is made by the call |
//! | `image list --format json` | an array of objects with `architecture`, `created_at`, `digest`, `layer_count`, `os`, `reference`, `size_bytes` |
//! | `image load --input TAR --tag REF --quiet` | exit 0 and nothing; exit 1 for what is no archive, a compressed one among them. The image is listed under `REF` **and** under every tag that the archive itself names |
//! | `image remove REF --quiet` | exit 0 and nothing; exit 1 for an unknown image as for one in use, with the same words on stderr |
//! | `sandbox list --format json` | an array, `[]` without sandboxes |
//!
//! So a list by name alone cannot say what a store has: the archive's own tag is in it. A list is read with the digest of
//! each entry instead, and an image is removed under all of its names.
//!
//! What is on stderr is never read. Nothing here says more than the bytes do: whether an empty list is the list of *our*
//! store is for whoever looked at the store's owner record before.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::image::{ImageReference, is_reference};
use crate::limits::{MSB_ANSWER_MAX_BYTES, MSB_LIST_MAX_BYTES};
use crate::strict;

/// The machine that every image of a release is for.
const ARCHITECTURE: &str = "amd64";
/// And its system.
const SYSTEM: &str = "linux";

/// Why an answer about an image is not the word that it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Inspected {
    /// Longer than 64 KiB.
    #[error("msb's answer is longer than 64 KiB")]
    TooLong,
    /// Not one JSON object with the members that count, each once.
    #[error("msb's answer is not one JSON object with reference, digest, architecture and os")]
    Malformed,
    /// It is about another image.
    #[error("msb has another image under the name of the release's; remove it from the store")]
    Another,
    /// It is for another machine.
    #[error("msb's image is not for linux on amd64; prepare the generation again")]
    Platform,
}

/// One image of a store. Programs of one version print the same members; what does not count is not looked at.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Listed {
    /// What it is called: pinned, or with a tag.
    pub reference: String,
    /// `sha256:…` of its manifest.
    pub digest: String,
    /// `amd64` for ours.
    pub architecture: String,
    /// `linux` for ours.
    pub os: String,
}

/// Judges the answer to `image inspect`: exactly this image, for this machine (node-host §8.9 check 7).
///
/// # Errors
/// What is wrong with it.
pub fn inspected(answer: &[u8], image: &ImageReference) -> Result<(), Inspected> {
    if answer.len() > MSB_ANSWER_MAX_BYTES {
        return Err(Inspected::TooLong);
    }
    let found: Listed = strict::object(answer).map_err(|_| Inspected::Malformed)?;
    found.judge(image)
}

impl Listed {
    /// Whether this is `image`, for our machine.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(&self, image: &ImageReference) -> Result<(), Inspected> {
        if self.reference != image.to_string() || !self.is_content_of(image) {
            Err(Inspected::Another)
        } else if self.architecture != ARCHITECTURE || self.os != SYSTEM {
            Err(Inspected::Platform)
        } else {
            Ok(())
        }
    }

    /// What it is, whatever it is called: a tag says nothing, its content does. `None` for an entry that contradicts
    /// itself, with which the whole list is unknown (node-host §3.8 step 3).
    #[must_use]
    pub fn pinned(&self) -> Option<ImageReference> {
        if let Ok(pinned) = ImageReference::parse(&self.reference) {
            return self.is_content_of(&pinned).then_some(pinned);
        }
        ImageReference::parse(&format!("{}@{}", untagged(&self.reference), self.digest)).ok()
    }

    /// Whether it is the same image, whatever it is called.
    #[must_use]
    pub fn is_content_of(&self, image: &ImageReference) -> bool {
        self.digest == format!("sha256:{}", image.digest())
    }
}

/// Reads the whole list of `image list --format json`; `None` when anything in it is not understood.
#[must_use]
pub fn listed(answer: &[u8]) -> Option<Vec<Listed>> {
    let answer = within(answer)?;
    let entries: Vec<strict::Object<Listed>> = serde_json::from_slice(answer).ok()?;
    let named = entries.iter().all(|entry| is_reference(&entry.0.reference));
    named.then(|| entries.into_iter().map(|entry| entry.0).collect())
}

/// Whether `sandbox list --format json` lists any; `None` for everything but one array (node-host §3.8 step 4).
#[must_use]
pub fn has_sandboxes(answer: &[u8]) -> Option<bool> {
    let sandboxes: Vec<&RawValue> = serde_json::from_slice(within(answer)?).ok()?;
    Some(!sandboxes.is_empty())
}

/// A name without its tag, which stands after the last slash.
fn untagged(reference: &str) -> &str {
    let last = reference.rfind('/').map_or(0, |slash| slash + 1);
    let name = reference[last..].find([':', '@']).unwrap_or(reference.len() - last);
    &reference[..last + name]
}

fn within(answer: &[u8]) -> Option<&[u8]> {
    (answer.len() <= MSB_LIST_MAX_BYTES).then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "22860558310f5671c6c8a595156ac37f5d03940d4d4a768e1b56c91fc144f696";

    fn image() -> ImageReference {
        ImageReference::parse(&format!("oac-runtime@sha256:{HEX}")).unwrap()
    }

    /// As msb 0.7.2 prints it, shortened in what does not count.
    fn real() -> String {
        format!(
            r#"{{
  "architecture": "amd64",
  "config": {{"cmd": null, "digest": "sha256:{HEX}", "entrypoint": ["/usr/local/bin/oac-sandbox-io"], "env": []}},
  "created_at": "2026-11-30T08:11:52.646819699+00:00",
  "digest": "sha256:{HEX}",
  "layer_count": 1,
  "layers": [{{"erofs_size_bytes": null, "position": 0}}],
  "os": "linux",
  "reference": "oac-runtime@sha256:{HEX}",
  "size_bytes": 3215872
}}
"#
        )
    }

    /// H 224. The answer about an image is exactly one object about exactly this image on our machine.
    #[test]
    fn an_inspection_is_believed_only_when_it_is_exact() {
        assert_eq!(inspected(real().as_bytes(), &image()), Ok(()));
        let other = HEX.replace('2', "3");
        let wrong = [
            (real().replace("amd64", "arm64"), Inspected::Platform),
            (real().replace("linux", "windows"), Inspected::Platform),
            (
                real().replace(
                    &format!("\"digest\": \"sha256:{HEX}\",\n"),
                    &format!("\"digest\": \"sha256:{other}\",\n"),
                ),
                Inspected::Another,
            ),
            (real().replace("oac-runtime@", "other@"), Inspected::Another),
            (real().replace("\"os\": \"linux\",", ""), Inspected::Malformed),
            (real().replace("\"os\": \"linux\",", "\"os\": null,"), Inspected::Malformed),
            (real().replace("\"os\": \"linux\",", "\"os\": \"linux\", \"os\": \"linux\","), Inspected::Malformed),
            (real().replace("\"digest\"", "\"Digest\""), Inspected::Malformed),
            (format!("{}{}", real(), real()), Inspected::Malformed),
            (format!("{} x", real()), Inspected::Malformed),
            (format!("[{}]", real()), Inspected::Malformed),
            (real()[..real().len() / 2].to_owned(), Inspected::Malformed),
            (String::new(), Inspected::Malformed),
            ("null".to_owned(), Inspected::Malformed),
            ("[]".to_owned(), Inspected::Malformed),
        ];
        for (answer, expected) in wrong {
            assert_eq!(inspected(answer.as_bytes(), &image()), Err(expected), "{answer}");
        }
        assert_eq!(inspected(&[0xff, 0xfe], &image()), Err(Inspected::Malformed));
    }

    /// H 224. 64 KiB are read, and one byte more is refused.
    #[test]
    fn an_inspection_has_its_bound() {
        let padded = |length: usize| {
            let mut answer = real().into_bytes();
            answer.resize(length, b' ');
            answer
        };
        assert_eq!(inspected(&padded(MSB_ANSWER_MAX_BYTES), &image()), Ok(()));
        assert_eq!(inspected(&padded(MSB_ANSWER_MAX_BYTES + 1), &image()), Err(Inspected::TooLong));
    }

    #[test]
    fn a_list_names_every_image_with_its_content() {
        let entry = real();
        let tagged = entry.replace(&format!("\"oac-runtime@sha256:{HEX}\""), "\"oac-runtime:9ba4f2d09aa2\"");
        let images = listed(format!("[{entry},{tagged}]").as_bytes()).unwrap();
        assert_eq!(images[0].judge(&image()), Ok(()));
        assert_eq!(images[1].judge(&image()), Err(Inspected::Another));
        assert!(images[1].is_content_of(&image()));
        assert_eq!(listed(b"[]\n"), Some(Vec::new()));
        let option = entry.replace(&format!("\"oac-runtime@sha256:{HEX}\""), "\"--force\"");
        for text in ["", "{}", "null", "[1]", "[[]]", "[] []", &entry, &format!("[{option}]")] {
            assert_eq!(listed(text.as_bytes()), None, "{text}");
        }
    }

    /// H 132. Every entry of a list stands for one content; one that contradicts itself makes the list unknown.
    #[test]
    fn every_entry_stands_for_its_content() {
        let entry = |reference: &str, digest: &str| Listed {
            reference: reference.to_owned(),
            digest: digest.to_owned(),
            architecture: "amd64".to_owned(),
            os: "linux".to_owned(),
        };
        let digest = format!("sha256:{HEX}");
        let told = |reference: &str, digest: &str| entry(reference, digest).pinned().map(|image| image.to_string());
        let whole = format!("oac-runtime@{digest}");
        for reference in [&*whole, "oac-runtime:9ba4f2d09aa2", "oac-runtime"] {
            assert_eq!(told(reference, &digest).as_deref(), Some(&*whole), "{reference}");
        }
        let deep = told("localhost:5000/oac/runtime:1", &digest);
        assert_eq!(deep, Some(format!("localhost:5000/oac/runtime@{digest}")));
        let untagged = told("localhost:5000/oac/runtime", &digest);
        assert_eq!(untagged, deep);
        let other = digest.replace('2', "3");
        for (reference, digest) in [
            (&*whole, &*other),
            (&*whole, ""),
            ("latest", "latest"),
            ("latest", HEX),
            ("latest", ""),
            (":1", &*digest),
            ("/runtime:1", &*digest),
            ("", &*digest),
        ] {
            assert_eq!(told(reference, digest), None, "{reference} {digest}");
        }
    }

    /// H 132. Only one array says whether there are sandboxes.
    #[test]
    fn sandboxes_are_listed_by_one_array() {
        assert_eq!(has_sandboxes(b"[]"), Some(false));
        assert_eq!(has_sandboxes(b"[ ]\n"), Some(false));
        assert_eq!(has_sandboxes(br#"[{"name":"oac-1-g0"}]"#), Some(true));
        for text in ["", "{}", "null", "[", "[] []", "[]x", "no sandboxes"] {
            assert_eq!(has_sandboxes(text.as_bytes()), None, "{text:?}");
        }
    }
}
