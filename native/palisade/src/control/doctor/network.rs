//! Addresses.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use palisade_core::deployment::origin::{Origin, valid_core_url};

use crate::control::config::Config;
use crate::control::status;
use crate::findings::Finding;
use crate::operator::http::Http;

/// Longest wait for the answer of a Core.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Whether Core could listen, or does.
pub(super) async fn listen(config: &Config, running: bool) -> Finding {
    const CHECK: &str = "listen";
    let address = match config.listen() {
        Ok(address) => address,
        Err(error) => return Finding::problem(CHECK, error.to_string(), "correct it"),
    };
    let found = if running && address.port() != 0 {
        match ask(&format!("http://{}", reachable(address))).await {
            Ok(status) => format!("a core answers at {address}: {status}"),
            Err(error) => {
                let next = "if the running core was told another address, tell the doctor the same";
                return Finding::warning(CHECK, format!("a core runs, and not here: {error}"), next);
            }
        }
    } else {
        match TcpListener::bind(address) {
            Ok(_) => format!("{address} is free"),
            Err(error) => {
                let next = "end what listens there, or name another address with --listen";
                return Finding::problem(CHECK, format!("cannot listen on {address}: {error}"), next);
            }
        }
    };
    if address.ip().is_loopback() {
        return Finding::ok(CHECK, found);
    }
    let next = "core speaks plain http: let only a proxy with TLS reach this address";
    Finding::warning(CHECK, format!("{found}; other hosts reach it"), next)
}

/// Whoever reaches this address needs no key.
pub(super) fn metrics(config: &Config) -> Option<Finding> {
    const CHECK: &str = "metrics";
    match config.metrics_listen() {
        Ok(None) => None,
        Err(error) => Some(Finding::problem(CHECK, error.to_string(), "correct it")),
        Ok(Some(address)) if address.ip().is_loopback() => Some(Finding::ok(CHECK, format!("served on {address}"))),
        Ok(Some(address)) => {
            let next = "no key is asked for there: let only your Prometheus reach it";
            Some(Finding::warning(CHECK, format!("{address} is reached by other hosts"), next))
        }
    }
}

/// Whether nodes can reach Core where it says it is.
pub(super) async fn public_url(config: &Config, running: bool) -> Finding {
    const CHECK: &str = "public url";
    let Some(url) = config.text("public_url") else {
        if let Ok(address) = config.listen()
            && !address.ip().is_loopback()
        {
            return plain(&format!("http://{address}"));
        }
        let next = "nodes on other hosts need one: set --public-url or OAC_PUBLIC_URL";
        return Finding::warning(CHECK, "none is set: the address listened on is used", next);
    };
    let Some(origin) = Origin::parse(&url) else {
        let found = "it is no https or http origin without path, query or user";
        return Finding::problem(CHECK, found, "name one such as https://core.example");
    };
    if !valid_core_url(&url) {
        return plain(&url);
    }
    if running && let Err(error) = ask(&url).await {
        let next = "nodes dial this address: check the name, the proxy and the firewall";
        return Finding::warning(CHECK, format!("no core is reached there: {error}"), next);
    }
    let reached = if running { ", and a core answers there" } else { "" };
    if origin.is_loopback() {
        return Finding::warning(CHECK, format!("only this host reaches {url}"), "fine for nodes on this host only");
    }
    Finding::ok(CHECK, format!("{url}{reached}"))
}

/// A node may be told to accept it; a sandbox never does, and Core cannot see why its sessions end.
fn plain(url: &str) -> Finding {
    let found = format!("{url} is plain http to another host: sandboxes refuse it, so that every session fails");
    let next = "put a proxy with TLS before core, and name its https address with --public-url or OAC_PUBLIC_URL";
    Finding::problem("public url", found, next)
}

async fn ask(origin: &str) -> anyhow::Result<&'static str> {
    Ok(status::ask(&Http::within(origin, ANSWER_MAX)?).await?.name())
}

/// An address that listens everywhere is asked on this host.
fn reachable(address: SocketAddr) -> SocketAddr {
    match (address.ip().is_unspecified(), address.is_ipv4()) {
        (false, _) => address,
        (true, true) => SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), address.port()),
        (true, false) => SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), address.port()),
    }
}
