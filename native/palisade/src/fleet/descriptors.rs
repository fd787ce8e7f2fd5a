//! Room for one socket a node, here and in a Core that is started from here.

use anyhow::ensure;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors beside the sockets of the nodes: database, listener, standard streams, the HTTP client's connections.
const SPARE: u64 = 128;

/// Raises the soft limit of open files to the hard one, and checks that the sockets of `nodes` fit.
pub(crate) fn reserve(nodes: u32) -> anyhow::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    let needed = u64::from(nodes) + SPARE;
    ensure!(
        needed <= hard,
        "{nodes} nodes need {needed} open files in this process and in core, and the limit is {hard}; raise it \
         (ulimit -Hn {needed}) or take at most {} nodes",
        hard.saturating_sub(SPARE)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_nodes_than_descriptors_are_refused_with_the_number_that_fits() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let nodes = u32::try_from(hard).unwrap_or(u32::MAX);
        let refused = reserve(nodes).unwrap_err().to_string();
        assert!(refused.contains(&format!("at most {} nodes", hard - SPARE)), "{refused}");
        reserve(1).unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    }
}
