//! The commands for a host's shell, really run: in every shell that they promise to work in, with real curl, sha256sum,
//! flock and sudo, and a real HTTP server. Only the installer is a stand-in, which writes down how it was started.
//!
//! The tests need root, and the Debian packages `sudo`, `zsh` and `busybox-static`. What sudo may do is bound over
//! `/etc/sudoers` in a mount namespace of one run, so that the machine keeps its own.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::disallowed_methods, reason = "throw-away files of a test")]

mod cache;
mod download;
mod host;
mod proxies;
mod runs;
mod server;
