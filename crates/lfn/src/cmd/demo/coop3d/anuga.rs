//! ANUGA as the lake: a Python program that computes, and a pipe in each direction to it.
//!
//! The script writes one line of JSON when it is ready. Then each step sends it the wind and receives the lake, as raw
//! float64 values. The script ends when its standard input ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lfn_sys::process::unblock_all_signals;
use serde::Deserialize;

use super::basin::{CELLS, COLUMNS, Cells, DEPTH, LENGTH, MODEL_STEP, Model, ROWS, Surface, WIDTH};
use super::fields::{decode, encode};

/// Program of the lake, also for `--check` without `lfn`.
const SCRIPT: &str = include_str!("anuga_lake.py");

/// Python command that ends with 0 if the packages are installed. It does not import them, so that it is quick.
const PROBE: &str = "import importlib.util as u, sys; sys.exit(not (u.find_spec('anuga') and u.find_spec('numpy')))";

/// Command that installs ANUGA and runs the demo with it.
pub const INSTALL: &str =
    "python3 -m venv anuga && anuga/bin/pip install anuga numpy && lfn demo coop3d --python anuga/bin/python3";

/// Steps before the measured ones: ANUGA prepares its operators in the first one.
const WARM_UP: usize = 2;
/// Measured steps; the median counts.
const MEASURED: usize = 7;

/// First line of the script.
#[derive(Debug, Clone, Deserialize)]
pub struct AnugaVersion {
    pub version: String,
    /// Number of triangles of the mesh.
    pub triangles: u64,
}

/// ANUGA in a process of its own.
#[derive(Debug)]
pub struct AnugaLake {
    surface: Surface,
    pub version: AnugaVersion,
    process: Child,
    wind: Option<ChildStdin>,
    lake: BufReader<ChildStdout>,
    /// Messages of the process.
    log: PathBuf,
}

/// Returns true if ANUGA and NumPy are installed for this Python.
pub fn is_installed(python: &Path) -> bool {
    let mut probe = Command::new(python);
    probe.args(["-c", PROBE]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

impl AnugaLake {
    /// Starts ANUGA, and waits until it is ready. The script and the messages of ANUGA are in `work`.
    pub fn start(python: &Path, work: &Path) -> Result<Self> {
        let (script, log) = (work.join("anuga_lake.py"), work.join("anuga.log"));
        fs::write(&script, SCRIPT).with_context(|| format!("cannot write {}", script.display()))?;
        let messages = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(python);
        command.arg(&script).args(["--columns", &COLUMNS.to_string(), "--rows", &ROWS.to_string()]);
        command.args(["--length", &LENGTH.to_string(), "--width", &WIDTH.to_string()]);
        command.args(["--depth", &DEPTH.to_string(), "--step", &MODEL_STEP.as_secs().to_string()]);
        // ANUGA writes files into the current directory.
        command.current_dir(work).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(messages);
        // The demo blocks signals while it measures ANUGA.
        unblock_all_signals(&mut command);
        let mut process = command.spawn().with_context(|| format!("cannot start {}", python.display()))?;
        let wind = process.stdin.take();
        let mut lake = BufReader::new(process.stdout.take().context("ANUGA has no output")?);
        let mut line = String::new();
        lake.read_line(&mut line).context("cannot read the output of ANUGA")?;
        let Ok(version) = serde_json::from_str(&line) else {
            let _ = process.kill();
            let _ = process.wait();
            bail!("ANUGA did not start: {}", last_line(&log));
        };
        Ok(AnugaLake { surface: Surface::at_rest(), version, process, wind, lake, log })
    }

    /// Returns the time that ANUGA computes in one step: the median of some steps.
    pub fn measure_step(&mut self) -> Result<Duration> {
        self.surface.wind_east.fill(10.0);
        let mut times = Vec::with_capacity(MEASURED);
        for number in 0..WARM_UP + MEASURED {
            let start = Instant::now();
            self.step()?;
            if number >= WARM_UP {
                times.push(start.elapsed());
            }
        }
        times.sort_unstable();
        Ok(times[MEASURED / 2])
    }

    fn exchange(&mut self) -> std::io::Result<()> {
        let mut bytes = vec![0; 8 * CELLS];
        for wind in [&self.surface.wind_east, &self.surface.wind_north] {
            encode(wind, &mut bytes);
            self.wind.as_mut().map_or(Ok(()), |pipe| pipe.write_all(&bytes))?;
        }
        self.wind.as_mut().map_or(Ok(()), Write::flush)?;
        let Surface { level, current_east, current_north, .. } = &mut self.surface;
        let fields: [&mut Cells; 3] = [level, current_east, current_north];
        for field in fields {
            self.lake.read_exact(&mut bytes)?;
            decode(&bytes, field);
        }
        Ok(())
    }
}

impl Model for AnugaLake {
    fn surface(&mut self) -> &mut Surface {
        &mut self.surface
    }

    fn step(&mut self) -> Result<()> {
        self.exchange().with_context(|| format!("ANUGA ended: {}", last_line(&self.log)))
    }
}

impl Drop for AnugaLake {
    fn drop(&mut self) {
        // The end of its input ends the script. A script that computes is killed.
        drop(self.wind.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the last line of the messages.
fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::super::basin::{AIR_DENSITY, DRAG, GRAVITY, MANNING, WATER_DENSITY};
    use super::*;

    /// Returns the number after this text in the script.
    fn number_after(text: &str) -> f64 {
        let (_, rest) = SCRIPT.split_once(text).unwrap_or_else(|| panic!("{text}"));
        let end = rest.find(|next: char| !next.is_ascii_alphanumeric() && next != '.' && next != '-').unwrap();
        rest[..end].parse().unwrap()
    }

    #[test]
    fn script_has_the_constants_of_the_basin() {
        let constants = [
            ("\nAIR_DENSITY = ", AIR_DENSITY),
            ("\nWATER_DENSITY = ", WATER_DENSITY),
            ("\nDRAG = ", DRAG),
            ("\nMANNING = ", MANNING),
            ("\nGRAVITY = ", GRAVITY),
            ("\"--columns\", type=int, default=", COLUMNS as f64),
            ("\"--rows\", type=int, default=", ROWS as f64),
            ("\"--length\", type=float, default=", LENGTH),
            ("\"--width\", type=float, default=", WIDTH),
            ("\"--depth\", type=float, default=", DEPTH),
            ("\"--step\", type=float, default=", MODEL_STEP.as_secs_f64()),
        ];
        for (text, expected) in constants {
            assert_eq!(number_after(text), expected, "{text}");
        }
    }
}
