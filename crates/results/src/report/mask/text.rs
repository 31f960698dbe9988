//! Replacement of addresses, names and files in a text.

use core::net::IpAddr;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::evidence::host_of;

/// Address for documentation (RFC 7042 §2.1.1).
const MASKED_MAC: &str = "00:00:5e:00:53:01";
/// Replacement of a file or directory.
const MASKED_FILE: &str = "/FILE";
/// Replacement of a server with its token.
const MASKED_TICKET: &str = "lfn://TICKET";
const MASKED_USER: &str = "user";
/// Replacements that do not depend on the document, and the names that stay.
const COMMON_REPLACEMENTS: [&str; 5] = [MASKED_FILE, MASKED_TICKET, MASKED_USER, "near", "far"];
/// Replacement of a value that the user typed.
const MASKED_VALUE: &str = "VALUE";
/// Directories of the kernel, and of settings that a remedy names.
const KEPT_DIRECTORIES: [&str; 4] = ["/proc/sys/", "/proc/net/", "/sys/class/", "/etc/sysctl"];
/// First labels of names with dots that are no names of hosts: sysctls, control groups and lfn itself.
const KEPT_LABELS: [&str; 6] = ["net", "kernel", "vm", "cpu", "memory", "lfn"];
/// Domain of names that are masked already (RFC 2606).
const MASKED_DOMAIN: &str = ".example";
/// Typed words that are not names: commands, formats and the masked hosts.
const KEPT_WORDS: [&str; 6] = ["doctor", "near", "far", "json", "ndjson", "text"];

/// Replacements of addresses and names.
#[derive(Debug, Default)]
pub(super) struct Mask {
    /// Names in small letters with their replacements.
    names: BTreeMap<String, String>,
    /// Paths of disks with their replacements, the longest first.
    paths: Vec<(String, String)>,
    /// Names of hosts that only occur in texts.
    other_hosts: BTreeMap<String, String>,
    addresses: BTreeMap<IpAddr, String>,
}

impl Mask {
    /// Adds a name. The first replacement of a name counts.
    pub(super) fn add_name(&mut self, name: &str, replacement: String) {
        let host = host_of(name);
        let is_common = ["near", "far", "localhost"].contains(&host);
        if !host.is_empty() && !is_common && host.parse::<IpAddr>().is_err() {
            self.names.entry(host.to_ascii_lowercase()).or_insert(replacement);
        }
    }

    /// Adds the path of a disk as it was typed: it may have spaces, or look like a word.
    pub(super) fn add_path(&mut self, path: &str, replacement: &str) {
        if !path.is_empty() && path != "." {
            self.paths.push((path.to_owned(), replacement.to_owned()));
            self.paths.sort_by_key(|(path, _)| Reverse(path.len()));
        }
    }

    /// Masks a command as it was typed: flags, numbers and names of lfn stay.
    pub(super) fn command(&mut self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.typed(word)).collect()
    }

    fn typed(&mut self, word: &str) -> String {
        match word.split_once('=') {
            Some((flag, value)) if flag.starts_with('-') => format!("{}={}", self.flag(flag), self.value(value)),
            None if word.starts_with('-') => self.flag(word),
            _ => self.value(word),
        }
    }

    /// Keeps the name of a flag. The value may follow a short flag without a space (`-t10s`).
    fn flag(&mut self, flag: &str) -> String {
        let is_plain = flag.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        match flag.char_indices().nth(2) {
            Some((end, _)) if !flag.starts_with("--") => flag[..end].to_owned() + &self.value(&flag[end..]),
            _ if is_plain || flag.len() <= 2 => flag.to_owned(),
            _ => MASKED_VALUE.to_owned(),
        }
    }

    fn value(&mut self, value: &str) -> String {
        let is_number = value.starts_with(|c: char| c.is_ascii_digit())
            && value.chars().all(|c| c.is_ascii_alphanumeric() || ".%".contains(c));
        let masked = self.text(value);
        let is_number = is_number && masked == value;
        if is_number || KEPT_WORDS.contains(&value) || self.is_masked(&masked) {
            masked
        } else {
            MASKED_VALUE.to_owned()
        }
    }

    /// Returns true if a typed value consists of replacements, and perhaps a port.
    fn is_masked(&self, value: &str) -> bool {
        let names = self.names.values().chain(self.other_hosts.values()).chain(self.addresses.values());
        let known = names.chain(self.paths.iter().map(|(_, replacement)| replacement)).map(String::as_str);
        let rest = known.chain(COMMON_REPLACEMENTS).fold(value.to_owned(), |rest, known| rest.replace(known, ""));
        rest.chars().all(|c| c.is_ascii_digit() || "@:[]".contains(c))
    }

    /// Replaces a text that is a name or an address as a whole.
    pub(super) fn name(&mut self, name: &str) -> String {
        let is_common = ["", "near", "far", "lo", "localhost"].contains(&name);
        let known = self.names.get(&host_of(name).to_ascii_lowercase()).cloned();
        let address = known.or_else(|| self.address(name));
        let is_own_address = name.parse::<IpAddr>().is_ok();
        address.unwrap_or_else(|| if is_common || is_own_address { name.to_owned() } else { "name.example".to_owned() })
    }

    /// Replaces the names, addresses and files of a text. A name is replaced only where no longer name contains it.
    pub(super) fn text(&mut self, text: &str) -> String {
        let text = self.without_paths(text);
        let is_separator = |c: char| c.is_whitespace() || "'\"`=()<>,;".contains(c);
        let mut masked = String::new();
        for part in text.split_inclusive(is_separator) {
            let bare = part.trim_end_matches(is_separator);
            masked += &self.part(bare);
            masked += &part[bare.len()..];
        }
        masked
    }

    /// Replaces the paths of disks. A path is replaced only where no longer path or name contains it.
    fn without_paths(&self, text: &str) -> String {
        let is_inside = |c: char| is_name_character(c) || c == '/';
        self.paths.iter().fold(text.to_owned(), |text, (path, replacement)| {
            let mut masked = String::new();
            let mut end = 0;
            for (start, _) in text.match_indices(path.as_str()) {
                let after = start + path.len();
                let is_whole = !text[..start].ends_with(is_inside) && !text[after..].starts_with(is_inside);
                masked += &text[end..start];
                masked += if is_whole { replacement } else { path };
                end = after;
            }
            masked + &text[end..]
        })
    }

    /// Replaces a part of a text without spaces and quotes.
    fn part(&mut self, part: &str) -> String {
        if let Some(at) = part.find("lfn://") {
            return part[..at].to_owned() + MASKED_TICKET;
        }
        if let Some(start) = start_of_file(part) {
            let (before, file) = part.split_at(start);
            let is_kept = KEPT_DIRECTORIES.iter().any(|directory| file.starts_with(directory)) && !file.contains("..");
            let bare = file.trim_end_matches([':', '.']);
            let masked = if is_kept { bare } else { MASKED_FILE };
            return self.words(before) + masked + &file[bare.len()..];
        }
        match part.rsplit_once('@') {
            Some((user, host)) if user.ends_with(is_name_character) => format!("{MASKED_USER}@{}", self.words(host)),
            _ => self.words(part),
        }
    }

    fn words(&mut self, text: &str) -> String {
        let mut masked = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let after_zone = masked.ends_with('%') && masked.contains(':') && !word.is_empty();
            masked += &if after_zone { "if0".to_owned() } else { self.word(word) };
            let other = after.find(is_word).unwrap_or(after.len());
            masked += &after[..other];
            rest = &after[other..];
        }
        masked
    }

    /// Replaces a word of name characters and colons: an address, an address with a port, or names.
    fn word(&mut self, word: &str) -> String {
        let bare = word.trim_end_matches(['.', ':']);
        let tail = &word[bare.len()..];
        // The last colons of an address like `fe80::` belong to it.
        for (bare, tail) in [(word, ""), (bare, tail)] {
            if let Some(masked) = self.address(bare) {
                return masked + tail;
            }
        }
        if is_mac(bare) {
            return MASKED_MAC.to_owned() + tail;
        }
        if let Some((host, port)) = bare.rsplit_once(':')
            && let Some(masked) = self.address(host)
        {
            return format!("{masked}:{port}{tail}");
        }
        let parts = bare.split(':').map(|name| self.word_without_colons(name)).collect::<Vec<_>>();
        parts.join(":") + tail
    }

    fn word_without_colons(&mut self, word: &str) -> String {
        let small = word.to_ascii_lowercase();
        if let Some(masked) = self.names.get(&small) {
            return masked.clone();
        }
        if let Some(masked) = self.address(word) {
            return masked;
        }
        if !is_host_name(&small) {
            return word.to_owned();
        }
        let number = self.other_hosts.len() + 1;
        self.other_hosts.entry(small).or_insert_with(|| format!("name{number}{MASKED_DOMAIN}")).clone()
    }

    /// Returns the replacement of an address; none if the text is no address or an address of every host.
    fn address(&mut self, text: &str) -> Option<String> {
        let address: IpAddr = text.parse().ok()?;
        if address.is_loopback() || address.is_unspecified() {
            return None;
        }
        let number = self.addresses.len() + 1;
        let masked = self.addresses.entry(address).or_insert_with(|| match address {
            // Three ranges for documentation have 254 addresses each.
            IpAddr::V4(_) => {
                let range = ["192.0.2", "198.51.100", "203.0.113"][(number / 254) % 3];
                format!("{range}.{}", number % 254 + 1)
            }
            IpAddr::V6(_) => format!("2001:db8::{number:x}"),
        });
        Some(masked.clone())
    }
}

/// Characters of names, which separate words for the search.
fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

fn is_word(c: char) -> bool {
    is_name_character(c) || c == ':'
}

/// Returns the position at which a file begins: a slash, `./`, `../` or `~/` that does not follow a word, as `Mb/s`.
fn start_of_file(part: &str) -> Option<usize> {
    let starts = |at: usize| {
        let rest = part[at..].trim_start_matches(['.', '~', '/']);
        rest.starts_with(|c: char| c.is_alphanumeric() || "_-%".contains(c))
    };
    let slashes = part.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| at);
    slashes.map(|at| part[..at].trim_end_matches(['.', '~', '/']).len()).find(|at| {
        let before = part[..*at].chars().next_back();
        starts(*at) && !before.is_some_and(|c| c.is_alphanumeric() || "_-%".contains(c))
    })
}

/// Returns true for six bytes with colons.
fn is_mac(word: &str) -> bool {
    let bytes: Vec<&str> = word.split(':').collect();
    bytes.len() == 6 && bytes.iter().all(|byte| byte.len() == 2 && byte.chars().all(|c| c.is_ascii_hexdigit()))
}

/// Returns true for a name with a domain: labels with dots, the last one of letters.
fn is_host_name(word: &str) -> bool {
    let labels: Vec<&str> = word.split('.').collect();
    let (first, last) = (labels[0], labels[labels.len() - 1]);
    let is_label = |label: &str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    labels.len() >= 2
        && labels.iter().all(|label| is_label(label))
        && last.len() >= 2
        && last.chars().all(|c| c.is_ascii_alphabetic())
        && !KEPT_LABELS.contains(&first)
        && !word.ends_with(MASKED_DOMAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_common_words_stay() {
        let mut mask = Mask::default();
        mask.add_name("far", "x".into());
        mask.add_name("host", "near".into());
        let kept = [
            "12.5 % of 3.1.4 packets: 10:15",
            "net.ipv4.tcp_rmem",
            "sysctl -w net.core.rmem_max=67108864 net.ipv4.tcp_rmem='4096 131072 67108864'",
            "22 of 956 Mb/s, 3 packets/s and 1/2",
            "tcp_cubic.hystart",
            "/proc/sys/net/ipv4",
            "hosts",
            "127.0.0.1",
            "::",
        ];
        for text in kept {
            assert_eq!(mask.text(text), text);
        }
        assert_eq!(mask.text("host: the Host."), "near: the near.");
    }

    #[test]
    fn hardware_addresses_files_and_tickets_are_replaced() {
        let mut mask = Mask::default();
        let cases = [
            ("link aa:BB:cc:00:11:22.", "link 00:00:5e:00:53:01."),
            ("cannot read /data/me/my.json: denied", "cannot read /FILE: denied"),
            ("--disk=/srv/x ~/data ../y", "--disk=/FILE /FILE /FILE"),
            ("https://lab.site.org/a?b", "https:/FILE"),
            ("ssh me@lab.site.org:22", "ssh user@name1.example:22"),
            ("of LAB.site.org and other.site.org", "of name1.example and name2.example"),
            ("use 'lfn://TOKEN@10.1.2.3:7323/#key'", "use 'lfn://TICKET'"),
            ("fe80::1%eth7", "2001:db8::1%if0"),
            ("[fe80::2]:7323, 10.0.0.0/8", "[2001:db8::2]:7323, 192.0.2.4/8"),
        ];
        for (text, masked) in cases {
            assert_eq!(mask.text(text), masked);
        }
    }

    #[test]
    fn path_is_replaced_unless_it_is_part_of_a_longer_one() {
        let mut mask = Mask::default();
        mask.add_path("/d", "P");
        assert_eq!(mask.without_paths("/data x/d /d/e (/d, ext4) /d"), "/data x/d /d/e (P, ext4) P");
    }

    #[test]
    fn flags_and_numbers_of_a_command_stay() {
        let mut mask = Mask::default();
        mask.add_name("me@lab3", "far".into());
        let typed = "doctor me@lab3 --quick -t10s --max-load 5mbit --report=mine.json --key secret -oname --ssh-port 22 --via me@jump lab3:7323";
        let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
        let masked = "doctor user@far --quick -t10s --max-load 5mbit --report=name1.example --key VALUE -oVALUE --ssh-port 22 --via VALUE far:7323";
        assert_eq!(mask.command(&words).join(" "), masked);
        let ssh = ["--ssh", "ssh -i key-of-ann -J jump lab3"].map(str::to_owned);
        assert_eq!(mask.command(&ssh), ["--ssh", "VALUE"]);
    }
}
