//! The pinned `msb` program, for what concerns images and lists (node-host §3.8, §8.9, §8.10).
//!
//! It is asked as a process with a minimal environment, without input, with a bounded output and a bounded time, and is
//! killed when it takes longer: unlike a helper it works with no sandbox.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use palisade_core::limits::{MSB_ANSWER_MAX_BYTES, MSB_LIST_MAX_BYTES};
use palisade_core::microsandbox::image::ImageReference;
use palisade_core::microsandbox::msb::{self, Inspected, Listed};
use palisade_core::microsandbox::native::Native;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use crate::limits::{BUSY_INTERVAL, BUSY_RETRIES, LOAD_TIMEOUT, QUESTION_TIMEOUT, REMOVAL_TIMEOUT};

/// Where the programs that `msb` itself may look for are.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// `msb` with its firmware and one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Msb {
    program: PathBuf,
    firmware: PathBuf,
    store: PathBuf,
}

/// What a store has under the name of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// The image.
    There,
    /// Nothing.
    Absent,
    /// Another image, or one for another machine.
    Foreign,
}

/// Why `msb` did not do or say what was asked.
#[derive(Debug, thiserror::Error)]
pub enum MsbError {
    /// It could not be started.
    #[error("{}: {error}; prepare the generation again", .program.display())]
    Start {
        /// Which program.
        program: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It was started and could not be followed.
    #[error("msb could not be followed to its end: {0}")]
    Lost(#[from] io::Error),
    /// It took too long, and was ended.
    #[error("msb did not end within {} seconds, and was ended", .0.as_secs())]
    TimedOut(Duration),
    /// It said too much, and was ended.
    #[error("msb said more than {0} bytes, and was ended")]
    TooMuch(usize),
    /// It refused. Its own words are not repeated.
    #[error("msb refused with exit status {0}")]
    Refused(i32),
    /// It was ended by a signal.
    #[error("msb was ended by a signal")]
    Killed,
    /// What it said was not understood.
    #[error("msb's list of {0} was not understood")]
    Malformed(&'static str),
    /// It has not what was asked for.
    #[error(transparent)]
    Inspected(#[from] Inspected),
}

impl Msb {
    /// The program and firmware of a release, for one store.
    #[must_use]
    pub fn new(program: &Path, firmware: &Path, store: &Path) -> Self {
        Self { program: program.to_owned(), firmware: firmware.to_owned(), store: store.to_owned() }
    }

    pub(crate) fn of(native: &Native) -> Self {
        Self::new(native.runtime_path.as_ref(), native.firmware_path.as_ref(), native.runtime_home.as_ref())
    }

    /// Asks for an image as a probe does: exactly this one, for our machine.
    ///
    /// # Errors
    /// Whatever is not the word that it is there.
    pub async fn inspect(&self, image: &ImageReference) -> Result<(), MsbError> {
        let reference = image.to_string();
        let words = ["image", "inspect", &reference, "--format", "json"];
        let answer = self.run(&words, MSB_ANSWER_MAX_BYTES, QUESTION_TIMEOUT).await?;
        Ok(msb::inspected(&answer, image)?)
    }

    /// Whether the store has an image. That it is not there is the word of a whole list, never of a failure.
    ///
    /// # Errors
    /// A program that does not say.
    pub async fn image(&self, image: &ImageReference) -> Result<Image, MsbError> {
        let reference = image.to_string();
        match self.list().await?.into_iter().find(|listed| listed.reference == reference) {
            None => Ok(Image::Absent),
            Some(listed) if listed.judge(image).is_err() => Ok(Image::Foreign),
            Some(_) => match self.inspect(image).await {
                Ok(()) => Ok(Image::There),
                Err(MsbError::Inspected(_)) => Ok(Image::Foreign),
                Err(error) => Err(error),
            },
        }
    }

    /// Loads an archive, which must not be compressed, under the name of an image. Whether the image is there afterwards
    /// is asked with [`Msb::image`].
    ///
    /// # Errors
    /// A program that refuses the archive or takes longer than half an hour.
    pub async fn load(&self, archive: &Path, image: &ImageReference) -> Result<(), MsbError> {
        let reference = image.to_string();
        let mut command = self.command(&["image", "load", "--input"]);
        command.arg(archive).args(["--tag", &reference, "--quiet"]);
        finish(command, &self.program, MSB_ANSWER_MAX_BYTES, LOAD_TIMEOUT).await.map(drop)
    }

    /// Every image of the store.
    ///
    /// # Errors
    /// A program that does not say, or says anything that is not understood.
    pub async fn inventory(&self) -> Result<Vec<ImageReference>, MsbError> {
        self.list().await?.iter().map(|listed| listed.pinned().ok_or(MsbError::Malformed("images"))).collect()
    }

    /// Removes an image under all of its names, the pinned one last, so that an interrupted removal is seen as one.
    /// `false` when the program refuses: something uses the image.
    ///
    /// # Errors
    /// A program that cannot be started, or does not end.
    pub async fn remove(&self, image: &ImageReference) -> Result<bool, MsbError> {
        let mut names: Vec<_> = self.list().await?.into_iter().filter(|listed| listed.is_content_of(image)).collect();
        names.sort_by_key(|listed| ImageReference::parse(&listed.reference).is_ok());
        for listed in names {
            let words = ["image", "remove", &listed.reference, "--quiet"];
            match self.run(&words, MSB_ANSWER_MAX_BYTES, REMOVAL_TIMEOUT).await {
                Ok(_) => {}
                Err(MsbError::Refused(_)) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether the store has sandboxes, running or not.
    ///
    /// # Errors
    /// A program that does not say, or says anything but a list.
    pub async fn has_sandboxes(&self) -> Result<bool, MsbError> {
        let answer = self.run(&["sandbox", "list", "--format", "json"], MSB_LIST_MAX_BYTES, QUESTION_TIMEOUT).await?;
        msb::has_sandboxes(&answer).ok_or(MsbError::Malformed("sandboxes"))
    }

    async fn list(&self) -> Result<Vec<Listed>, MsbError> {
        let answer = self.run(&["image", "list", "--format", "json"], MSB_LIST_MAX_BYTES, QUESTION_TIMEOUT).await?;
        msb::listed(&answer).ok_or(MsbError::Malformed("images"))
    }

    async fn run(&self, words: &[&str], most: usize, time: Duration) -> Result<Vec<u8>, MsbError> {
        finish(self.command(words), &self.program, most, time).await
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).env_clear().env("PATH", PATH);
        // A store is in the folder of stores of its account's home.
        command.env("HOME", self.store.ancestors().nth(3).unwrap_or(Path::new("/")));
        command.env("MSB_HOME", &self.store).env("MSB_PATH", &self.program);
        command.env("MSB_LIBKRUNFW_PATH", &self.firmware).env("MSB_BACKEND", "local");
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.kill_on_drop(true);
        command
    }
}

/// Runs a program to its end, or ends it.
async fn finish(command: Command, program: &Path, most: usize, time: Duration) -> Result<Vec<u8>, MsbError> {
    let whole = async {
        let started = start(command).await;
        let child = started.map_err(|error| MsbError::Start { program: program.to_owned(), error })?;
        read(child, most).await
    };
    tokio::time::timeout(time, whole).await.unwrap_or(Err(MsbError::TimedOut(time)))
}

/// A program that was written a moment ago may still be open in a process that another thread is just starting.
async fn start(mut command: Command) -> io::Result<Child> {
    for _ in 0..BUSY_RETRIES {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => tokio::time::sleep(BUSY_INTERVAL).await,
            started => return started,
        }
    }
    command.spawn()
}

async fn read(mut child: Child, most: usize) -> Result<Vec<u8>, MsbError> {
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(most as u64 + 1).read_to_end(&mut output).await?;
    }
    if output.len() > most {
        child.kill().await?;
        return Err(MsbError::TooMuch(most));
    }
    let status = child.wait().await?;
    match status.code() {
        Some(0) => Ok(output),
        Some(code) => Err(MsbError::Refused(code)),
        None => Err(MsbError::Killed),
    }
}
