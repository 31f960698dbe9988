//! Typed options of an emulation, which also cross the pipe to the helper.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use lfn_core::link::EmulatedPath;
use lfn_core::link::settings::{HopSettings, SettingsError};
use lfn_net::emulator::FarSide;
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
    /// Measure the speed of this machine before the run.
    pub calibrate: bool,
    /// Run even if this machine is too slow for the settings.
    pub force: bool,
    /// Raise the limits of the TCP buffers on both sides to fill the path.
    pub large_buffers: bool,
    /// Packet log, `NAME.jsonl` or `NAME.pcapng`.
    pub log: Option<PathBuf>,
    /// Command on the near side, with its arguments. Its standard input is empty.
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
        iperf3: bool,
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
            far: RequestedFarSide::Server { root: None, iperf3: true },
            calibrate: true,
            force: false,
            large_buffers: false,
            log: None,
            command: command.into_iter().map(Into::into).collect(),
        }
    }

    pub(super) fn emulated_paths(&self) -> Result<Vec<EmulatedPath>, EmulateRequestError> {
        let path = |links: &EmulatedLinks| EmulatedPath::new(&links.links, links.mtu);
        self.paths.iter().map(path).collect::<Result<_, _>>().map_err(EmulateRequestError::Settings)
    }

    /// Returns the far side; `program` is the lfn that serves it.
    pub(super) fn far_side(&self, program: PathBuf) -> Result<FarSide, EmulateRequestError> {
        match &self.far {
            RequestedFarSide::Nothing => Ok(FarSide::Nothing),
            RequestedFarSide::Shell(line) => Ok(FarSide::Shell(line.clone())),
            RequestedFarSide::Server { root, iperf3 } => {
                far_server(program, root.as_deref(), if *iperf3 { &["--iperf3"] } else { &[] })
            }
        }
    }
}

impl EmulatedLinks {
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

    use super::*;

    #[test]
    fn requests_cross_the_pipe_unchanged() {
        let mut links = EmulatedLinks::from_spec("rate=50mbit,rtt=20ms,return-rate=5mbit,loss=1%").unwrap();
        links.links.push(EmulatedLinks::from_spec("rate=1gbit,delay=3ms").unwrap().links.remove(0));
        let word = OsString::from_vec(vec![b'a', 0xff]);
        let request = EmulateRequest { seed: Some(u64::MAX), ..EmulateRequest::new(links, [word]) };
        let read: EmulateRequest = serde_json::from_str(&serde_json::to_string(&request).unwrap()).unwrap();
        assert_eq!((read.paths, read.command, read.seed), (request.paths, request.command, request.seed));
        assert_eq!(read.far, request.far);
    }
}
