//! Exchange of the fields by copied files, for comparison with the channel: each step of a component is a directory, and the
//! near side copies the directories of both sides with `lfn copy`.
//!
//! The directories of the far side exist before its server starts, and the emulator starts the near side when the server has
//! printed its ticket. So a copy that fails is an error. A copy of a directory whose field is not there yet is repeated.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::exchange::{Component, Exchange};
use super::fields::{decode, encode};

/// Number of steps, which are enough for a median without the first one: each takes some round trips.
pub const FILE_STEPS: u64 = 6;

/// Maximum time until a file of the other side arrives.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause until the next look for a file.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// One end of the exchange.
#[derive(Debug)]
pub struct FileExchange {
    component: Component,
    program: PathBuf,
    /// Directory of this side. That of the far side is the root of its server.
    own: PathBuf,
    steps: u64,
    step: Option<u64>,
    /// True if the directory of this step has been copied in both directions.
    is_copied: bool,
}

impl FileExchange {
    /// Creates the directory of one side below `work`, with the directories of its steps.
    pub fn new(component: Component, work: &Path) -> Result<Self> {
        let own = work.join(format!("files-{}", component.name()));
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let exchange = FileExchange { component, program, own, steps: FILE_STEPS, step: None, is_copied: false };
        for step in 0..FILE_STEPS {
            fs::create_dir_all(exchange.directory(component, step))?;
        }
        Ok(exchange)
    }

    /// Starts the server of the far side. It prints its ticket, and ends with the process group.
    pub fn serve(&self) -> Result<Child> {
        let mut server = Command::new(&self.program);
        server.args(["serve", "--no-defaults", "--ephemeral", "--quiet", "--ticket-host", "far", "--root"]);
        server.arg(&self.own).stdin(Stdio::null()).spawn().context("cannot start lfn serve")
    }

    fn directory(&self, component: Component, step: u64) -> PathBuf {
        self.own.join(format!("{}-{step}", component.name()))
    }

    fn partner(&self) -> Component {
        match self.component {
            Component::Atmosphere => Component::Lake,
            Component::Lake => Component::Atmosphere,
        }
    }

    /// Copies the fields of this step to the far side, and those of the far side to this side, at the same time.
    fn copy_both_ways(&self, step: u64) -> Result<()> {
        let own = self.directory(self.component, step);
        thread::scope(|scope| {
            let send = scope.spawn(|| self.copy(&[own.as_os_str(), "far:".as_ref()]));
            let fetched = self.fetch(step);
            let sent = send.join();
            fetched.and(sent.unwrap_or_else(|_| bail!("a thread panicked")))
        })
    }

    /// Copies the fields of the far side to this side.
    fn fetch(&self, step: u64) -> Result<()> {
        let partner = format!("far:{}-{step}", self.partner().name());
        self.copy(&[partner.as_ref(), self.own.as_os_str()])
    }

    fn copy(&self, places: &[&OsStr]) -> Result<()> {
        let mut copy = Command::new(&self.program);
        copy.args(["copy", "--no-defaults", "--quiet"]).args(places);
        let output = copy.stdin(Stdio::null()).output().context("cannot start lfn copy")?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr);
        bail!("lfn copy ended with {}: {}", output.status, message.trim().trim_start_matches("lfn: "))
    }
}

impl Exchange for FileExchange {
    fn begin_step(&mut self) -> Result<Option<u64>> {
        let next = self.step.map_or(0, |step| step + 1);
        (self.step, self.is_copied) = (Some(next), false);
        Ok((next < self.steps).then_some(next))
    }

    fn put(&mut self, variable: &str, values: &[f64]) -> Result<()> {
        let directory = self.directory(self.component, self.step.unwrap_or_default());
        let mut bytes = vec![0; 8 * values.len()];
        encode(values, &mut bytes);
        // A copy never has a part of a file.
        let incomplete = self.own.join("incomplete");
        fs::write(&incomplete, bytes)?;
        fs::rename(incomplete, directory.join(variable)).context("cannot write a field")
    }

    fn get(&mut self, variable: &str, values: &mut [f64]) -> Result<()> {
        let step = self.step.unwrap_or_default();
        let deadline = Instant::now() + PATIENCE;
        let file = self.directory(self.partner(), step).join(variable);
        if self.component == Component::Atmosphere && !self.is_copied {
            self.copy_both_ways(step)?;
            self.is_copied = true;
        }
        loop {
            match fs::read(&file) {
                Ok(bytes) if bytes.len() == 8 * values.len() => {
                    decode(&bytes, values);
                    return Ok(());
                }
                _ if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
                _ => bail!("{variable} of step {step} did not arrive"),
            }
            // The directory was copied before the far side had written this file.
            if self.component == Component::Atmosphere {
                self.fetch(step)?;
            }
        }
    }
}
