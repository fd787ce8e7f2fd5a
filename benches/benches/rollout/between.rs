//! What lies between a node and Core: a network that is slow for long answers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes a second towards the node, on each connection.
const RATE: u32 = 4 << 20;
const PIECE_BYTES: usize = 64 * 1024;

/// Passes on whatever comes, until it is dropped with its runtime.
pub(crate) struct Between {
    /// Where nodes reach Core.
    pub(crate) url: String,
    core: watch::Sender<Option<String>>,
}

impl Between {
    pub(crate) async fn listen() -> anyhow::Result<Arc<Self>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let between = Arc::new(Self { url, core: watch::Sender::new(None) });
        let passing = Arc::clone(&between);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let passing = Arc::clone(&passing);
                // Who goes away in the middle goes away.
                tokio::spawn(async move { drop(passing.pass(stream).await) });
            }
        });
        Ok(between)
    }

    /// Core listens there.
    pub(crate) fn reaches(&self, origin: &str) {
        self.core.send_replace(origin.strip_prefix("http://").map(str::to_owned));
    }

    async fn pass(&self, mut node: TcpStream) -> anyhow::Result<()> {
        let address = self.core.subscribe().wait_for(Option::is_some).await?.clone().context("waited for")?;
        let mut core = TcpStream::connect(address).await?;
        let (mut asked, mut told) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        loop {
            tokio::select! {
                read = node.read(&mut asked) => {
                    let Ok(read @ 1..) = read else { return Ok(()) };
                    core.write_all(&asked[..read]).await?;
                }
                read = core.read(&mut told) => {
                    let Ok(read @ 1..) = read else { return Ok(()) };
                    node.write_all(&told[..read]).await?;
                    if read > PIECE_BYTES / 16 {
                        tokio::time::sleep(Duration::from_secs(1) * u32::try_from(read)? / RATE).await;
                    }
                }
            }
        }
    }
}
