//! Masked evidence: a copy without addresses and names, for a public report.
//!
//! Each address gets another one from the ranges for documentation (RFC 5737, RFC 3849), and each name a number. The same
//! address or name has the same replacement in the whole document, so that findings and remedies still fit together.

use core::net::IpAddr;
use std::collections::BTreeMap;

use serde_json::Value;

use super::doctor::DoctorDocument;
use super::read::ReadError;

/// Characters of names, which separate words for the search.
fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

/// Replacements of addresses and names.
#[derive(Debug, Default)]
struct Mask {
    /// Names with their replacements.
    names: BTreeMap<String, String>,
    addresses: BTreeMap<IpAddr, String>,
}

impl DoctorDocument {
    /// Returns the document without the addresses and the names of its hosts. The names `near` and `far` stay.
    pub fn masked(&self) -> Result<DoctorDocument, ReadError> {
        let mut document = serde_json::to_value(self)?;
        let mut mask = Mask::default();
        for (name, replacement) in self.names() {
            mask.add_name(name, replacement);
        }
        mask.apply(&mut document);
        Ok(serde_json::from_value(document)?)
    }

    /// Returns the names of the hosts, of their kernels, and of the hops of the path.
    fn names(&self) -> Vec<(&str, String)> {
        let hosts = &self.origin.hosts;
        let mut names = vec![(hosts.near.as_str(), "near".to_owned()), (hosts.far.as_str(), "far".to_owned())];
        for evidence in self.runs.iter().map(|run| &run.evidence) {
            names.extend([(evidence.hosts.near.as_str(), "near".into()), (evidence.hosts.far.as_str(), "far".into())]);
            for (end, name) in [(&evidence.near, "near"), (&evidence.far, "far")] {
                names.extend(end.kernel.as_ref().map(|kernel| (kernel.host.as_str(), name.to_owned())));
            }
            let traces = evidence.path_report.iter().flat_map(|report| &report.traces);
            let nodes = traces.flat_map(|trace| &trace.hops).flat_map(|hop| &hop.nodes);
            for (number, name) in nodes.filter_map(|node| node.name.as_deref()).enumerate() {
                names.push((name, format!("hop{}.example", number + 1)));
            }
        }
        names
    }
}

impl Mask {
    fn add_name(&mut self, name: &str, replacement: String) {
        if !name.is_empty() && !["near", "far", "localhost"].contains(&name) && name.parse::<IpAddr>().is_err() {
            self.names.entry(name.to_owned()).or_insert(replacement);
        }
    }

    /// Replaces all texts. Keys stay, because they are names of figures.
    fn apply(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.apply(value)),
            Value::Object(map) => map.values_mut().for_each(|value| self.apply(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Replaces the names and addresses of a text. A name is replaced only where no longer name contains it.
    fn text(&mut self, text: &str) -> String {
        let mut masked = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            masked += &self.word(word);
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
        if let Some(masked) = self.address(bare) {
            return masked + tail;
        }
        if let Some((host, port)) = bare.rsplit_once(':')
            && let Some(masked) = self.address(host)
        {
            return format!("{masked}:{port}{tail}");
        }
        let parts = bare.split(':').map(|name| self.name(name)).collect::<Vec<_>>();
        parts.join(":") + tail
    }

    fn name(&self, name: &str) -> String {
        self.names.get(name).cloned().unwrap_or_else(|| name.to_owned())
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

fn is_word(c: char) -> bool {
    is_name_character(c) || c == ':'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{Evidence, HostNames};
    use crate::host::Note;
    use crate::measure::{EndReport, Kernel};
    use crate::report::{Origin, PlannedLoad};

    fn document() -> DoctorDocument {
        let hosts = HostNames { near: "lab3".into(), far: "far.example.org".into() };
        let kernel = |host: &str| Some(Kernel { host: host.into(), ..Kernel::default() });
        let note = Note::warning("cannot reach 10.1.2.3:7323 from fe80::1 (far.example.org), then 10.1.2.3");
        let near = EndReport { kernel: kernel("lab3.internal"), notes: vec![note], ..EndReport::default() };
        let far = EndReport { kernel: kernel("srv17"), ..EndReport::default() };
        let command = ["doctor", "far.example.org"].map(str::to_owned).to_vec();
        let origin = Origin { hosts: hosts.clone(), command, ..Origin::default() };
        let evidence = Evidence { hosts, near, far, ..Evidence::default() };
        DoctorDocument::new(origin, PlannedLoad::default(), vec![evidence], Vec::new())
    }

    #[test]
    fn names_and_addresses_are_replaced_everywhere() {
        let masked = document().masked().unwrap();
        let text = serde_json::to_string(&masked).unwrap();
        for secret in ["lab3", "example.org", "srv17", "10.1.2.3", "fe80"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        let note = &masked.runs[0].evidence.near.notes[0].message;
        assert_eq!(note, "cannot reach 192.0.2.2:7323 from 2001:db8::2 (far), then 192.0.2.2");
        assert_eq!(masked.origin.command, ["doctor", "far"]);
    }

    #[test]
    fn figures_and_common_words_stay() {
        let mut mask = Mask::default();
        mask.add_name("far", "x".into());
        mask.add_name("host", "near".into());
        for text in ["12.5 % of 3.1.4 packets: 10:15", "net.ipv4.tcp_rmem", "hosts", "127.0.0.1", "::"] {
            assert_eq!(mask.text(text), text);
        }
        assert_eq!(mask.text("host: the host."), "near: the host.".replace("host.", "near."));
    }

    #[test]
    fn masked_document_has_the_same_findings() {
        let masked = document().masked().unwrap();
        let causes = |document: &DoctorDocument| {
            document.findings.iter().map(|found| found.finding.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(causes(&masked.clone().diagnosed_again()), causes(&document()));
    }
}
