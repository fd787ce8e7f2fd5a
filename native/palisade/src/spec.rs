//! `palisade spec digest`.

use std::io::{Read, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::specification::Specification;

use crate::cli::Digest;

/// A specification is a few hundred bytes; more is a mistake.
const SPECIFICATION_MAX_BYTES: u64 = 65_536;

pub(crate) fn digest(options: &Digest) -> anyhow::Result<ExitCode> {
    let provider = Provider::from_name(&options.provider).context("clap offers known providers only")?;
    let mut bytes = Vec::new();
    let read = input(options.file.as_deref())?.take(SPECIFICATION_MAX_BYTES + 1).read_to_end(&mut bytes);
    read.with_context(|| source(options.file.as_deref()))?;
    anyhow::ensure!(
        bytes.len() as u64 <= SPECIFICATION_MAX_BYTES,
        "the specification is longer than {SPECIFICATION_MAX_BYTES} bytes"
    );
    let empty =
        "the specification is empty, expected a JSON object such as {\"resources\":{\"cpus\":2,\"memory_mib\":4096}}";
    anyhow::ensure!(!bytes.trim_ascii().is_empty(), empty);
    let specification = Specification::parse(provider, &bytes)?;
    let mut out = std::io::stdout().lock();
    if options.canonical {
        out.write_all(&specification.canonical())?;
    } else if options.json {
        writeln!(out, "{}", serde_json::json!({ "digest": specification.digest() }))?;
    } else {
        writeln!(out, "{}", specification.digest())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The file, or standard input.
pub(crate) fn input(file: Option<&std::path::Path>) -> anyhow::Result<Box<dyn Read>> {
    Ok(match file {
        Some(path) => Box::new(std::fs::File::open(path).with_context(|| source(file))?),
        None => Box::new(std::io::stdin().lock()),
    })
}

/// What an error of reading [`input`] is about.
pub(crate) fn source(file: Option<&std::path::Path>) -> String {
    file.map_or_else(|| "cannot read standard input".to_owned(), |path| format!("cannot read {}", path.display()))
}
