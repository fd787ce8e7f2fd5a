//! A server of one file, which answers as it is told and remembers what it was asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// What the server does with every request.
#[derive(Clone)]
pub(crate) enum Answer {
    /// The file, with its length.
    File(Vec<u8>),
    /// A status with further header lines and no body.
    Status(u16, String),
    /// Zeros without a length, until the other side has enough.
    Endless,
    /// Half of a file, and then nothing.
    Half(Vec<u8>),
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    halves: Receiver<()>,
}

impl Server {
    /// Serves until the test ends.
    pub(crate) fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (half_sent, halves) = channel();
        let seen = Arc::clone(&heads);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, seen, half_sent) = (answer.clone(), Arc::clone(&seen), half_sent.clone());
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    seen.lock().unwrap().push(head(&mut reader));
                    // Whoever asked may have gone.
                    let _ = write(reader.into_inner(), &answer, || half_sent.send(()).unwrap_or_default());
                });
            }
        });
        Self { address, heads, halves }
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The heads of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// Returns once half of a file was sent.
    pub(crate) fn half_sent(&self) {
        self.halves.recv().unwrap();
    }
}

fn head(reader: &mut BufReader<TcpStream>) -> String {
    let lines = reader.by_ref().lines().map_while(Result::ok);
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn write(mut stream: TcpStream, answer: &Answer, half_sent: impl FnOnce()) -> std::io::Result<()> {
    match answer {
        Answer::File(bytes) => {
            write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", bytes.len())?;
            stream.write_all(bytes)
        }
        Answer::Status(status, headers) => {
            write!(stream, "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: 0\r\n{headers}\r\n")
        }
        Answer::Endless => {
            write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")?;
            loop {
                stream.write_all(&[0; 4096])?;
            }
        }
        Answer::Half(bytes) => {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", bytes.len())?;
            stream.write_all(&bytes[..bytes.len() / 2])?;
            half_sent();
            // Until the other side goes away.
            stream.read_to_end(&mut Vec::new()).map(drop)
        }
    }
}
