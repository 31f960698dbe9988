//! Remedies that repeat the load with other flags.

use lfn_base::units::BitRate;

use super::Remedy;
use crate::evidence::figures::Figures;
use crate::evidence::{LoadKind, TypedArgument};
use crate::measure::TestDirection;

/// Share of a rate at which a sender stays below it, with headers.
const PACED_SHARE: f64 = 0.95;

/// Returns a rate a little below `rate`, in whole kb/s.
pub(super) fn rate_below(rate: BitRate) -> BitRate {
    BitRate((rate.as_f64() * PACED_SHARE) as u64 / 1000 * 1000)
}

/// Flags that repeat a copy with other streams. A test of the path has the other flags of remedies.
const COPY_FLAGS: [&str; 4] = ["congestion", "streams", "pacing", "verify"];
/// Flags that another flag replaces: the flag of a remedy, and the flags that are removed with it.
const REPLACED_FLAGS: &[(&str, &[&str])] = &[
    ("time", &["count", "bytes", "precision"]),
    ("window", &["near-window", "far-window"]),
    ("sndbuf", &["near-sndbuf", "far-sndbuf"]),
    ("rcvbuf", &["near-rcvbuf", "far-rcvbuf"]),
    ("no-copy", &["near-no-copy", "far-no-copy", "check-data"]),
    ("compare", &["tuned", "bidir", "path", "path-names"]),
    ("udp", &["congestion", "tuned", "compare", "window", "near-window", "far-window", "read-length", "precision"]),
    (
        "ramp",
        &[
            "udp",
            "time",
            "count",
            "bytes",
            "precision",
            "streams",
            "pacing",
            "bidir",
            "check-data",
            "block-timing",
            "congestion",
        ],
    ),
];

impl Figures {
    /// Returns the command that repeats the load with `flags`, which replace the same flags of the user. The number of
    /// streams stays unless `flags` sets it.
    pub(super) fn repeat_command(&self, flags: &str) -> Remedy {
        let new: Vec<&str> = flags.split_whitespace().filter_map(|word| word.strip_prefix("--")).collect();
        let is_copy = self.kind == LoadKind::Copy;
        if is_copy && new.iter().any(|flag| !COPY_FLAGS.contains(flag)) {
            return self.test_of_path(flags);
        }
        let is_replaced = |flag: &str| {
            let by = |name: &&str| REPLACED_FLAGS.iter().any(|(new, old)| new == name && old.contains(&flag));
            new.contains(&flag) || new.iter().any(by)
        };
        let keeps = |argument: &&TypedArgument| !argument.flag.as_deref().is_some_and(is_replaced);
        let mut words: Vec<&str> = self.arguments.iter().filter(keeps).map(|argument| argument.text.as_str()).collect();
        words.extend((!flags.is_empty()).then_some(flags));
        let sets_streams = |flag: &str| flag == "streams" || flag == "ramp";
        let typed = self.arguments.iter().filter_map(|argument| argument.flag.as_deref());
        let is_set = new.iter().copied().chain(typed).any(sets_streams);
        let streams = match self.stream_count() {
            0 | 1 => String::new(),
            // A copy chooses its streams again.
            _ if is_copy => String::new(),
            _ if is_set => String::new(),
            streams => format!(" --streams {streams}"),
        };
        let command = if is_copy { "copy" } else { "test" };
        Remedy { command: format!("lfn {command} {}{streams}", words.join(" ")), host: None }
    }

    /// Returns the command of a test of the path of a copy, which has more evidence than the copy.
    pub(super) fn test_of_path(&self, flags: &str) -> Remedy {
        let rate = self.path.map(|path| format!("--rate {}", path.capacity.to_argument()));
        let is_reverse = self.direction == TestDirection::Reverse;
        let reverse = is_reverse.then(|| "--reverse".to_owned());
        let words = [Some(self.far.clone()), reverse, rate, Some(flags.to_owned())].into_iter().flatten();
        let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
        Remedy { command: format!("lfn test {}", words.join(" ")), host: None }
    }

    /// Returns the command that repeats the load without `flag`.
    pub(super) fn repeat_without(&self, flag: &str) -> Remedy {
        let kept = self.arguments.iter().filter(|argument| argument.flag.as_deref() != Some(flag)).cloned();
        Figures { arguments: kept.collect(), ..self.clone() }.repeat_command("")
    }

    /// Reports whether the user gave the flag.
    pub(super) fn has_flag(&self, flag: &str) -> bool {
        self.arguments.iter().any(|argument| argument.flag.as_deref() == Some(flag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::half_bdp_window;

    fn typed(arguments: &[(&str, &str)]) -> Vec<TypedArgument> {
        let flag = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        arguments.iter().map(|(name, text)| TypedArgument { flag: flag(name), text: (*text).to_owned() }).collect()
    }

    #[test]
    fn a_remedy_keeps_the_flags_that_it_does_not_replace() {
        let mut figures = half_bdp_window();
        figures.arguments =
            typed(&[("", "far1"), ("time", "-t 15"), ("rate", "--rate 200mbit"), ("congestion", "-C cubic")]);
        let command = |flags| figures.repeat_command(flags).command;
        assert_eq!(command("--congestion bbr"), "lfn test far1 -t 15 --rate 200mbit --congestion bbr");
        assert_eq!(command("--time 60"), "lfn test far1 --rate 200mbit -C cubic --time 60");
        assert_eq!(command("--ramp"), "lfn test far1 --rate 200mbit --ramp");
        assert_eq!(figures.repeat_without("congestion").command, "lfn test far1 -t 15 --rate 200mbit");
    }

    #[test]
    fn a_remedy_repeats_the_test_with_as_many_streams() {
        let mut figures = half_bdp_window();
        figures.arguments = typed(&[("", "far.example"), ("reverse", "--reverse")]);
        assert_eq!(figures.repeat_command("--window 1").command, "lfn test far.example --reverse --window 1");
        figures.streams.push(figures.streams[0].clone());
        assert_eq!(
            figures.repeat_command("--window 1").command,
            "lfn test far.example --reverse --window 1 --streams 2"
        );
        assert_eq!(figures.repeat_command("--streams 4").command, "lfn test far.example --reverse --streams 4");
    }
}
