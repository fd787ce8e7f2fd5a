//! The package's functions as native code: reads one JSON call a line, prints one JSON answer a line. The Web tests
//! compare both.

use std::io::{BufRead, Write};

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Call {
    /// Base64 of a message.
    frame: Option<String>,
    provider: Option<String>,
    specification: Option<Box<RawValue>>,
    /// What an installation needs, and what a removal needs.
    install: Option<Box<RawValue>>,
    uninstall: Option<Box<RawValue>>,
    /// The id of an installation.
    log: Option<String>,
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let call: Call = serde_json::from_str(&line?)?;
        if let Some(message) = call.frame {
            let message = base64_simd::STANDARD.decode_to_vec(message).map_err(std::io::Error::other)?;
            writeln!(out, "{}", palisade_wasm::decode_frame(&message))?;
        }
        let install = call.install.map(|wanted| palisade_wasm::install_command(wanted.get()));
        let uninstall = call.uninstall.map(|wanted| palisade_wasm::uninstall_command(wanted.get()));
        let log = call.log.map(|id| palisade_wasm::log_command(&id));
        for command in [install, uninstall, log].into_iter().flatten() {
            writeln!(out, "{command}")?;
        }
        if let (Some(provider), Some(specification)) = (call.provider, call.specification) {
            let valid = palisade_wasm::validate_specification(&provider, specification.get());
            let digest = palisade_wasm::digest_specification(&provider, specification.get());
            writeln!(out, "[{valid},{digest}]")?;
        }
    }
    Ok(())
}
