//! The processes inside the emulated path: the atmosphere on the near side, and the lake on the far side.
//!
//! The lake listens, and prints its ticket for the emulator, which gives the ticket to the near side. Both processes run all
//! runs of the demo one after the other, with the same ticket.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use lfn_api::couple::read_coupling;
use lfn_base::units::{Bytes, show_duration};
use lfn_couple::channel::{COUPLE_PORT, ListenOptions};
use lfn_couple::{Channel, ChannelEvent, ChannelOptions, Coupling, Rendezvous};
use lfn_session::Ticket;
use lfn_session::dial::Target;
use serde::{Deserialize, Serialize};

use super::anuga::AnugaLake;
use super::atmosphere::Atmosphere;
use super::basin::Model;
use super::exchange::{Component, run_steps, variables_of};
use super::files::FileExchange;
use super::lake::Lake;
use super::plan::SYNTHETIC_STEP;
use crate::cmd::demo::stage;
use crate::print;

/// Maximum time without the other model. ANUGA starts within this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Memory for fields that a restarted partner would need; the demo restarts none.
const HISTORY: Bytes = Bytes(64 << 20);
/// Environment variable with the ticket of the far side.
const TICKET_VARIABLE: &str = "LFN_FAR_TICKET";

/// Directory that the parent process and both processes inside share. All of them are on this machine.
#[derive(Debug)]
pub struct WorkDirectory<'a>(pub &'a Path);

/// Contents of the settings file in the directory.
#[derive(Debug, Serialize, Deserialize)]
pub struct ComponentSettings {
    /// Python with ANUGA; none for the synthetic lake.
    pub python: Option<PathBuf>,
    pub runs: Vec<RunSettings>,
    /// Exchange copied files instead, with the coupling file of the first run.
    pub is_by_files: bool,
}

/// A run of the demo.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunSettings {
    pub name: String,
    /// Predicted time of the run, for the progress.
    pub expected: Duration,
}

impl WorkDirectory<'_> {
    /// Returns the path of the settings.
    pub fn settings(&self) -> PathBuf {
        self.0.join("settings.json")
    }

    /// Returns the path of the coupling file of a run.
    pub fn coupling(&self, run: &str) -> PathBuf {
        self.0.join(format!("{run}.toml"))
    }

    /// Returns the path of the measured figures of a run.
    pub fn report(&self, run: &str) -> PathBuf {
        self.0.join(format!("{run}-report.json"))
    }

    /// Returns the path of the surface of the lake at the end of a run.
    pub fn surface(&self, run: &str) -> PathBuf {
        self.0.join(format!("{run}-surface.json"))
    }

    /// Returns the path of the times of the steps by files.
    pub fn file_steps(&self) -> PathBuf {
        self.0.join("file-steps.json")
    }

    /// Returns the directory of the key and the token of the far side.
    fn identity(&self) -> PathBuf {
        self.0.join("identity")
    }
}

/// Runs one component in all runs.
pub fn run(work: &WorkDirectory<'_>, component: Component) -> Result<()> {
    let settings: ComponentSettings = serde_json::from_slice(&fs::read(work.settings())?)?;
    if settings.is_by_files {
        return run_by_files(work, component, &settings);
    }
    for number in 0..settings.runs.len() {
        let run = ComponentRun { work, settings: &settings, number };
        match component {
            Component::Atmosphere => run.run_atmosphere()?,
            Component::Lake => run.run_lake()?,
        }
    }
    Ok(())
}

/// One run of a component.
struct ComponentRun<'a> {
    work: &'a WorkDirectory<'a>,
    settings: &'a ComponentSettings,
    /// Index of the run in the settings.
    number: usize,
}

impl ComponentRun<'_> {
    fn run_settings(&self) -> &RunSettings {
        &self.settings.runs[self.number]
    }

    fn coupling(&self) -> Result<Coupling> {
        Ok(read_coupling(&self.work.coupling(&self.run_settings().name))?)
    }

    fn run_atmosphere(&self) -> Result<()> {
        let (run, coupling) = (self.run_settings(), self.coupling()?);
        let ticket = std::env::var(TICKET_VARIABLE).context("the far side has no ticket")?;
        let ticket: Ticket = ticket.parse().map_err(|error| anyhow!("the ticket of the far side: {error}"))?;
        let what = format!("[{}/{}] {}, {} steps", self.number + 1, self.settings.runs.len(), run.name, coupling.steps);
        let rendezvous = Rendezvous::Dial(Box::new(Target::new(ticket)?));
        let mut channel = Channel::open(options(coupling, Component::Atmosphere, rendezvous), report_event, || false)?;
        let progress = stage::progress(&what, run.expected);
        let steps = channel.steps();
        let variables = variables_of(channel.coupling(), channel.component());
        run_steps(&mut channel, &mut Atmosphere::new(), &variables, SYNTHETIC_STEP, |step| {
            progress.update(|shown| shown.message = format!("step {} of {steps}", step + 1));
        })?;
        let report = channel.finish()?;
        progress.finish();
        print::message(format_args!("{what}: {}\n", show_duration(report.own.run.max(report.partner.run))));
        fs::write(self.work.report(&run.name), serde_json::to_vec(&report)?)
            .context("cannot write the figures of the run")
    }

    fn run_lake(&self) -> Result<()> {
        let (mut model, min_step_time) = start_lake(self.work, self.settings.python.as_deref())?;
        fs::create_dir_all(self.work.identity())?;
        let listen = ListenOptions {
            bind: None,
            port: COUPLE_PORT,
            ticket_host: "far".to_owned(),
            state: Some(self.work.identity()),
            insecure: false,
        };
        let number = self.number;
        let on_event = move |event: &ChannelEvent| match event {
            // The emulator reads one ticket, and both runs have the same.
            ChannelEvent::Listening { ticket } if number == 0 => {
                let mut out = crate::print::out();
                // The emulator reports a missing ticket.
                let _ = writeln!(out, "{ticket}").and_then(|()| out.flush());
            }
            event => report_event(event),
        };
        let options = options(self.coupling()?, Component::Lake, Rendezvous::Listen(listen));
        let mut channel = Channel::open(options, on_event, || false)?;
        let variables = variables_of(channel.coupling(), channel.component());
        run_steps(&mut channel, model.as_mut(), &variables, min_step_time, |_| ())?;
        // The other side ends the emulation as soon as the channel is finished.
        let surface = serde_json::to_vec(model.surface())?;
        fs::write(self.work.surface(&self.run_settings().name), surface).context("cannot write the lake")?;
        channel.finish()?;
        Ok(())
    }
}

/// Starts the lake. Also returns the minimum time of a step.
fn start_lake(work: &WorkDirectory<'_>, python: Option<&Path>) -> Result<(Box<dyn Model>, Duration)> {
    Ok(match python {
        Some(python) => (Box::new(AnugaLake::start(python, work.0)?), Duration::ZERO),
        None => (Box::new(Lake::new()), SYNTHETIC_STEP),
    })
}

/// Runs some steps with copied files instead of the channel.
fn run_by_files(work: &WorkDirectory<'_>, component: Component, settings: &ComponentSettings) -> Result<()> {
    let run = settings.runs.first().context("the demo has no run")?;
    let variables = variables_of(&read_coupling(&work.coupling(&run.name))?, component.name());
    let mut exchange = FileExchange::new(component, work.0)?;
    if component == Component::Lake {
        let (mut lake, min_step_time) = start_lake(work, settings.python.as_deref())?;
        // The emulator ends the server with this process group.
        let _server = exchange.serve()?;
        return run_steps(&mut exchange, lake.as_mut(), &variables, min_step_time, |_| ());
    }
    let mut times = Vec::new();
    run_steps(&mut exchange, &mut Atmosphere::new(), &variables, SYNTHETIC_STEP, |_| times.push(Instant::now()))?;
    times.push(Instant::now());
    let steps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    fs::write(work.file_steps(), serde_json::to_vec(&steps)?).context("cannot write the times of the steps")
}

fn options(coupling: Coupling, component: Component, rendezvous: Rendezvous) -> ChannelOptions {
    ChannelOptions {
        coupling,
        component: component.name().to_owned(),
        rendezvous,
        patience: PATIENCE,
        resume: false,
        declared: BTreeMap::new(),
        history: HISTORY,
        streams: None,
    }
}

/// Prints the events that a reader of the demo must know.
fn report_event(event: &ChannelEvent) {
    match event {
        ChannelEvent::Lost { partner, reason, .. } => print::message(format_args!("lost {partner}: {reason}\n")),
        ChannelEvent::Refused { address, reason } => print::message(format_args!("refused {address}: {reason}\n")),
        _ => {}
    }
}
