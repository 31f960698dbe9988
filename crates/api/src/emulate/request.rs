//! Typed options of an emulation, which also cross the pipe to the helper.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use lfn_emulate::{EmulateError, FarSide, Placement, Setup};
use lfn_link::EmulatedPath;
use lfn_link::settings::{HopSettings, SettingsError};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::EmulateRequestError;

/// Default MTU of the interfaces, bytes.
pub const DEFAULT_MTU: u32 = 1500;

/// Options of an emulation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EmulateRequest {
    /// Parallel paths, at least one.
    pub paths: Vec<EmulatedLinks>,
    /// Seed of the random draws; `None` draws a seed.
    pub seed: Option<u64>,
    pub far: RequestedFarSide,
    /// Location of the two sides: new network namespaces, existing ones, or interfaces to bridge.
    pub placement: Placement,
    /// Measure the speed of this machine before the run.
    pub calibrate: bool,
    /// Run even if this machine is too slow for the settings.
    pub force: bool,
    /// Raise the limits of the TCP buffers on both sides to fill the path.
    pub large_buffers: bool,
    /// Packet log, `NAME.jsonl` or `NAME.pcapng`.
    pub log: Option<PathBuf>,
    /// Command on the near side, with its arguments. Empty: a shell, or none if the near side is an existing namespace
    /// or an interface; [`emulate()`](super::emulate()) needs a command, and its standard input is empty.
    #[serde(serialize_with = "write_words", deserialize_with = "read_words")]
    pub command: Vec<OsString>,
}

/// Links in series from near to far.
#[derive(Debug, Clone, PartialEq)]
pub struct EmulatedLinks {
    pub links: Vec<HopSettings>,
    /// MTU of the interfaces, bytes.
    pub mtu: u32,
}

/// Far side of an emulation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestedFarSide {
    /// `lfn serve`. Without a directory the served one is empty and in memory.
    Server {
        root: Option<PathBuf>,
        /// Answer iperf3 clients too.
        iperf3: bool,
        /// Use any free port. In an existing namespace, the usual ports belong to its own services.
        any_port: bool,
    },
    /// A command line for `sh -c`.
    Shell(String),
    Nothing,
}

impl EmulateRequest {
    /// Creates a request for one path and a command, with `lfn serve` on the far side.
    pub fn new<W: Into<OsString>>(links: EmulatedLinks, command: impl IntoIterator<Item = W>) -> Self {
        EmulateRequest {
            paths: vec![links],
            seed: None,
            far: RequestedFarSide::Server { root: None, iperf3: true, any_port: false },
            placement: Placement::default(),
            calibrate: true,
            force: false,
            large_buffers: false,
            log: None,
            command: command.into_iter().map(Into::into).collect(),
        }
    }

    /// Returns the settings of the run after a check. `program` is the lfn that serves the far side.
    pub fn setup(&self, program: PathBuf) -> Result<Setup, EmulateRequestError> {
        let paths = self.paths.iter().map(EmulatedLinks::path).collect::<Result<Vec<_>, _>>();
        let mut paths = paths.map_err(EmulateRequestError::Settings)?.into_iter();
        let first = paths.next().ok_or(EmulateError::Paths(0))?;
        let seed = match self.seed {
            Some(seed) => seed,
            None => random_seed()?,
        };
        let mut setup = Setup {
            placement: self.placement.clone(),
            calibrate: self.calibrate,
            force: self.force,
            large_buffers: self.large_buffers,
            ..Setup::new(first, seed, self.far_side(program)?)
        };
        setup.paths.extend(paths);
        setup.check()?;
        Ok(setup)
    }

    fn far_side(&self, program: PathBuf) -> Result<FarSide, EmulateRequestError> {
        match &self.far {
            RequestedFarSide::Nothing => Ok(FarSide::Nothing),
            RequestedFarSide::Shell(line) => Ok(FarSide::Shell(line.clone())),
            RequestedFarSide::Server { root, iperf3, any_port } => {
                let ports: &[&str] = match (any_port, iperf3) {
                    (true, _) => &["--port", "0"],
                    (false, true) => &["--iperf3"],
                    (false, false) => &[],
                };
                far_server(program, root.as_deref(), ports)
            }
        }
    }
}

/// Draws a seed of 32 bits, so that the number is short enough to type.
pub fn random_seed() -> Result<u64, EmulateRequestError> {
    getrandom::u32().map(u64::from).map_err(EmulateRequestError::NoSeed)
}

impl EmulatedLinks {
    /// Returns the path of these links after a check.
    pub fn path(&self) -> Result<EmulatedPath, SettingsError> {
        EmulatedPath::new(&self.links, self.mtu)
    }

    /// Parses one link: `KEY=VALUE,…`, as `--link` takes it, without traces from files.
    pub fn from_spec(spec: &str) -> Result<Self, SettingsError> {
        let mut settings = HopSettings::default();
        spec.split(',').try_for_each(|pair| settings.set_pair(pair.trim()))?;
        Ok(EmulatedLinks { links: vec![settings], mtu: DEFAULT_MTU })
    }
}

/// Returns a far side with `lfn serve`. Without a directory the served one is empty and in memory.
pub fn far_server(program: PathBuf, root: Option<&Path>, more: &[&str]) -> Result<FarSide, EmulateRequestError> {
    let memory_root = if root.is_none() { Some(mount_point(&program)?) } else { None };
    let served = root.or(memory_root.as_deref()).unwrap_or(Path::new("."));
    if !served.is_dir() {
        return Err(EmulateRequestError::NoFarRoot(served.to_owned()));
    }
    let fixed = ["serve", "--no-defaults", "--ephemeral", "--quiet", "--ticket-host", "far", "--root"];
    let mut arguments: Vec<OsString> = fixed.map(Into::into).into();
    arguments.push(served.into());
    arguments.extend(more.iter().map(Into::into));
    Ok(FarSide::Server { program, arguments, memory_root })
}

/// Returns a directory that the far server can use as the mount point of its own file system. The server must not need
/// the content: its own program is elsewhere.
fn mount_point(program: &Path) -> Result<PathBuf, EmulateRequestError> {
    let candidates = ["/mnt", "/media", "/srv", "/opt", "/tmp"].map(Path::new);
    let usable = candidates.into_iter().find(|path| path.is_dir() && !program.starts_with(path));
    usable.map(Path::to_owned).ok_or(EmulateRequestError::NoMountPoint)
}

/// JSON form of [`EmulatedLinks`]: the settings of each link as text.
#[derive(Serialize, Deserialize)]
struct LinksText {
    links: Vec<Vec<[String; 2]>>,
    mtu: u32,
}

impl Serialize for EmulatedLinks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = |link: &HopSettings| link.entries().map(|(key, value)| [key, value]).collect();
        LinksText { links: self.links.iter().map(entries).collect(), mtu: self.mtu }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EmulatedLinks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let LinksText { links, mtu } = LinksText::deserialize(deserializer)?;
        let link = |entries: Vec<[String; 2]>| {
            let mut settings = HopSettings::default();
            entries.iter().try_for_each(|[key, value]| settings.set(key, value))?;
            let read = &mut |file: &str| std::fs::read_to_string(file).map_err(|error| error.to_string());
            settings.read_traces(read).map(|()| settings)
        };
        let links = links.into_iter().map(link).collect::<Result<_, SettingsError>>();
        Ok(EmulatedLinks { links: links.map_err(serde::de::Error::custom)?, mtu })
    }
}

/// Writes words that may be no UTF-8.
fn write_words<S: Serializer>(words: &[OsString], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(words.iter().map(|word| word.as_bytes()))
}

fn read_words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<OsString>, D::Error> {
    let words = Vec::<Vec<u8>>::deserialize(deserializer)?;
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use lfn_emulate::NamespaceRef;

    use super::*;

    #[test]
    fn requests_cross_the_pipe_unchanged() {
        let mut links = EmulatedLinks::from_spec("rate=50mbit,rtt=20ms,return-rate=5mbit,loss=1%").unwrap();
        links.links.push(EmulatedLinks::from_spec("rate=1gbit,delay=3ms").unwrap().links.remove(0));
        let word = OsString::from_vec(vec![b'a', 0xff]);
        let near = Some(NamespaceRef::parse("/proc/1/ns/net"));
        let placement = Placement::Namespaces { near, far: None };
        let request = EmulateRequest { seed: Some(u64::MAX), placement, ..EmulateRequest::new(links, [word]) };
        let read: EmulateRequest = serde_json::from_str(&serde_json::to_string(&request).unwrap()).unwrap();
        assert_eq!((read.paths, read.command, read.seed), (request.paths, request.command, request.seed));
        assert_eq!((read.far, read.placement), (request.far, request.placement));
    }
}
