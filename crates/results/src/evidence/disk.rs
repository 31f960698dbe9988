//! Rates of the disk at one end, and the facts of its file system.
//!
//! The threads of a measurement read and write whole blocks one after the other, as the streams of a copy do. The bytes pass
//! the page cache or leave it, so that the rates are those of the disk and not of the memory.

use std::time::Duration;

use lfn_base::path::seconds;
use lfn_base::stats::median;
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

/// Maximum characters of the type of a file system.
const MAX_NAME: usize = 32;
/// Maximum characters of a reason.
const MAX_TEXT: usize = 256;
/// Types of file systems whose data is on another host.
const NETWORK_TYPES: [&str; 16] = [
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse.ceph",
    "fuse.glusterfs",
    "fuse.sshfs",
    "gfs2",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "ocfs2",
    "orangefs",
    "smb3",
];
/// Types of file systems whose data is in memory.
const MEMORY_TYPES: [&str; 2] = ["ramfs", "tmpfs"];

/// The disk of one end as the user named it, with its measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DiskEvidence {
    /// Path on this end, as typed. Other bytes than UTF-8 are replaced.
    pub path: String,
    #[serde(flatten)]
    pub report: DiskReport,
}

/// Measurement of a disk. What was not measured is absent, and has its reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DiskReport {
    /// Type of the file system, as `findmnt` shows it (`ext4`, `nfs4`, `tmpfs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// The disk rotates, by `queue/rotational` of its block device; absent if the file system has no such device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// Free space before the measurement, for an ordinary user.
    #[serde(default, rename = "free_bytes", skip_serializing_if = "Option::is_none")]
    pub free: Option<Bytes>,
    /// Size of the blocks that were read and written.
    #[serde(default, rename = "block_bytes")]
    pub block: Bytes,
    /// Threads that read and wrote in parallel.
    #[serde(default)]
    pub threads: u16,
    /// Rate of the reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<DiskRate>,
    /// Rate of the writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<DiskRate>,
    /// Reason why reading was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_read: Option<String>,
    /// Reason why writing was not measured; absent if the path is a file, which is only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_written: Option<String>,
    /// Rate limit of the server, which holds for the measurement too.
    #[serde(default, rename = "rate_limit_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<BitRate>,
}

/// Rate of sequential reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DiskRate {
    /// Way around the page cache.
    pub method: DiskMethod,
    /// Bytes that were read or written.
    pub bytes: Bytes,
    /// Size of the file. If `bytes` is larger, the file was read or overwritten again.
    pub file_bytes: Bytes,
    /// Time of the measurement, with the final flush of a write.
    #[serde(rename = "elapsed_seconds", with = "seconds")]
    pub elapsed: Duration,
    /// Bytes divided by the time.
    #[serde(rename = "rate_bits_per_second")]
    pub rate: BitRate,
    /// Median rate of the intervals.
    #[serde(rename = "median_bits_per_second")]
    pub median: BitRate,
    /// Rate of the slowest interval, without the final flush of a write: may be above the mean rate.
    #[serde(rename = "min_bits_per_second")]
    pub min: BitRate,
    /// Number of whole intervals, or 1.
    pub intervals: u32,
}

/// Way around the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DiskMethod {
    /// Direct input and output (`O_DIRECT`).
    Direct,
    /// Writes are flushed (`fdatasync`), and the cached pages are dropped before reads (`POSIX_FADV_DONTNEED`), because the
    /// file system has no direct input and output.
    Flushed,
}

impl DiskMethod {
    /// Returns the method in words.
    pub fn name(self) -> &'static str {
        match self {
            DiskMethod::Direct => "O_DIRECT",
            DiskMethod::Flushed => "flushed, without O_DIRECT",
        }
    }
}

impl DiskRate {
    /// Computes the rates of a measurement. `rates` are those of its whole intervals; without them, the whole measurement is
    /// one interval.
    pub fn new(method: DiskMethod, bytes: Bytes, elapsed: Duration, rates: &[BitRate]) -> Self {
        let rate = bytes.per(elapsed);
        let figures: Vec<f64> = rates.iter().map(|rate| rate.as_f64()).collect();
        DiskRate {
            method,
            bytes,
            file_bytes: bytes,
            elapsed,
            rate,
            median: median(&figures).map_or(rate, |median| BitRate(median as u64)),
            min: rates.iter().copied().min().unwrap_or(rate),
            intervals: rates.len().max(1) as u32,
        }
    }
}

impl DiskReport {
    /// Returns true if the data is on another host, and false if it is here or unknown.
    pub fn is_network(&self) -> bool {
        self.file_system.as_deref().is_some_and(|name| NETWORK_TYPES.contains(&name))
    }

    /// Returns true if the data is in memory.
    pub fn is_memory(&self) -> bool {
        self.file_system.as_deref().is_some_and(|name| MEMORY_TYPES.contains(&name))
    }

    /// Returns the kind of the disk in words: `ext4, rotating`.
    pub fn kind(&self) -> Option<String> {
        let name = self.file_system.as_deref()?;
        let more = match self.rotational {
            _ if self.is_network() => ", over the network",
            _ if self.is_memory() => ", in memory",
            Some(true) => ", rotating",
            Some(false) | None => "",
        };
        Some(format!("{name}{more}"))
    }

    /// Shortens the texts of a peer, and replaces characters that are special to a shell in names.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let is_plain = |c: char| c.is_alphanumeric() || "._-".contains(c);
        let name = |name: String| name.chars().take(MAX_NAME).map(|c| if is_plain(c) { c } else { '_' }).collect();
        self.file_system = self.file_system.take().map(name);
        for reason in [&mut self.not_read, &mut self.not_written] {
            *reason = reason.take().map(|text| text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect());
        }
        self
    }
}

/// Returns the type of the file system with this mount id: fields 1 and 9 of a line of `/proc/self/mountinfo`
/// (proc_pid_mountinfo(5)).
pub fn parse_file_system(mounts: &str, mount: &str) -> Option<String> {
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(mount))?;
    Some(line.split_once(" - ")?.1.split(' ').next()?.to_owned())
}

/// Returns the mount id of a text of `/proc/self/fdinfo`.
pub fn parse_mount_id(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_whole_intervals() {
        let second = Duration::from_secs(1);
        let rates = [BitRate(800), BitRate(160), BitRate(640)];
        let rate = DiskRate::new(DiskMethod::Direct, Bytes(240), second * 3, &rates);
        assert_eq!((rate.rate, rate.median, rate.min), (BitRate(640), BitRate(640), BitRate(160)));
        let short = DiskRate::new(DiskMethod::Direct, Bytes(100), second / 2, &[]);
        assert_eq!((short.median, short.min, short.intervals), (BitRate(1600), BitRate(1600), 1));
    }

    #[test]
    fn type_belongs_to_the_mount_of_the_file() {
        let mounts = "22 27 0:21 / /proc rw - proc proc rw\n\
                      27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                      31 27 0:40 / /mnt/a\\040b rw - nfs4 host:/x rw\n";
        let of = |fdinfo| parse_file_system(mounts, parse_mount_id(fdinfo)?);
        assert_eq!(of("pos:\t0\nflags:\t02\nmnt_id:\t27\nino:\t5\n").as_deref(), Some("ext4"));
        assert_eq!(of("mnt_id:\t31\n").as_deref(), Some("nfs4"));
        assert_eq!((of("mnt_id:\t3\n"), of("pos:\t27\n")), (None, None));
    }

    #[test]
    fn texts_of_a_peer_are_bounded() {
        let report = DiskReport {
            file_system: Some("ext4;$(reboot)".repeat(100)),
            not_written: Some("x\u{1b}[2J".repeat(1000)),
            ..DiskReport::default()
        };
        let report = report.bounded();
        assert!(report.file_system.is_some_and(|name| name.len() == 32 && name.starts_with("ext4___reboot_")));
        assert!(report.not_written.is_some_and(|text| text.len() == 256 && !text.contains('\u{1b}')));
    }

    #[test]
    fn kind_names_network_and_memory() {
        let kind = |name: &str, rotational| {
            DiskReport { file_system: Some(name.into()), rotational, ..DiskReport::default() }.kind().unwrap()
        };
        assert_eq!(kind("nfs4", None), "nfs4, over the network");
        assert_eq!(kind("tmpfs", None), "tmpfs, in memory");
        assert_eq!((kind("ext4", Some(true)), kind("xfs", Some(false))), ("ext4, rotating".into(), "xfs".into()));
    }
}
