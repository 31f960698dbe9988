//! Masked evidence: a copy without addresses and names, for a public report.
//!
//! Addresses, names of hosts and interfaces, users, files, tickets and values of typed flags are replaced. Each address becomes an
//! address of the ranges for documentation (RFC 5737, RFC 3849, RFC 7042), and each name a number. The same address or
//! name has the same replacement in the whole document, so that findings and remedies still fit together.

mod text;

use serde_json::Value;

use self::text::Mask;
use super::doctor::DoctorDocument;
use super::read_error::ReadError;
use crate::evidence::Evidence;

impl DoctorDocument {
    /// Returns the document without addresses, names and files of its hosts. The names `near` and `far` stay.
    pub fn masked(&self) -> Result<DoctorDocument, ReadError> {
        let mut mask = Mask::default();
        for (name, replacement) in self.names() {
            mask.add_name(name, replacement);
        }
        for disks in self.runs.iter().filter_map(|run| run.evidence.disks.as_deref()) {
            for (disk, replacement) in [(&disks.near, "NEAR-PATH"), (&disks.far, "FAR-PATH")] {
                disk.iter().for_each(|disk| mask.add_path(&disk.path, replacement));
            }
        }
        for (path, is_far) in typed_disks(&self.origin.command) {
            mask.add_path(path, if is_far { "FAR-PATH" } else { "NEAR-PATH" });
        }
        let command = mask.command(&self.origin.command);
        let mut document = serde_json::to_value(self)?;
        apply(&mut mask, &mut document, "", "");
        let mut masked: DoctorDocument = serde_json::from_value(document)?;
        // The replacements of the command are not replaced again.
        masked.origin.command = command;
        Ok(masked)
    }

    /// Returns the names of the hosts, of their kernels and interfaces, and of the hops of the path.
    fn names(&self) -> Vec<(&str, String)> {
        let hosts = &self.origin.hosts;
        let mut names = vec![(hosts.near.as_str(), "near".to_owned()), (hosts.far.as_str(), "far".to_owned())];
        for evidence in self.runs.iter().map(|run| &run.evidence) {
            names.extend([(evidence.hosts.near.as_str(), "near".into()), (evidence.hosts.far.as_str(), "far".into())]);
            for (end, name) in [(&evidence.near, "near"), (&evidence.far, "far")] {
                names.extend(end.kernel.as_ref().map(|kernel| (kernel.host.as_str(), name.to_owned())));
            }
            // The server as it was typed.
            let typed = evidence.arguments.iter().filter(|argument| argument.flag.is_none());
            let words = typed.flat_map(|argument| argument.text.split_whitespace().take(1));
            names.extend(words.map(|word| (word, "far".to_owned())));
            let traces = evidence.path_report.iter().flat_map(|report| &report.traces);
            let nodes = traces.flat_map(|trace| &trace.hops).flat_map(|hop| &hop.nodes);
            for (number, name) in nodes.filter_map(|node| node.name.as_deref()).enumerate() {
                names.push((name, format!("hop{}.example", number + 1)));
            }
            for (number, name) in evidence.interfaces().into_iter().enumerate() {
                names.push((name, format!("if{}", number + 1)));
            }
        }
        names
    }
}

impl Evidence {
    /// Returns the names of the interfaces of both hosts.
    fn interfaces(&self) -> Vec<&str> {
        let loads = [&self.near, &self.far].into_iter().filter_map(|end| end.host.as_ref()?.interface.as_ref());
        let facts = self.facts.iter().flat_map(|facts| [&facts.near, &facts.far]);
        let interfaces = facts.filter_map(|facts| facts.as_ref()?.interface.as_ref());
        let names = loads.map(|interface| interface.name.as_str());
        names.chain(interfaces.map(|interface| interface.name.as_str())).filter(|name| *name != "lo").collect()
    }
}

/// Returns the paths of `--disk` as they were typed, and whether they are on the server. A disk that was not measured is
/// only in the command and in the reason.
fn typed_disks(command: &[String]) -> impl Iterator<Item = (&str, bool)> {
    let next = command.iter().skip(1).map(Some).chain([None]);
    let values = command.iter().zip(next).filter_map(|(word, next)| match word.strip_prefix("--disk=") {
        Some(value) => Some(value),
        None if word == "--disk" => next.map(String::as_str),
        None => None,
    });
    values.map(|value| match value.rsplit_once(':') {
        Some((host, path)) if !host.contains('/') => (path, true),
        _ => (value, false),
    })
}

/// Replaces all texts of a value. Keys stay, because they are names of figures.
fn apply(mask: &mut Mask, value: &mut Value, parent: &str, key: &str) {
    match value {
        Value::String(_) if key == "schema" => {}
        Value::String(text) if key == "started" => *text = time(text),
        Value::String(text) if key == "release" => *text = version(text),
        Value::String(text) if is_name(parent, key) => *text = mask.name(text),
        Value::String(text) if key == "path" || (parent, key) == ("arguments", "text") => *text = mask.text(text),
        // A plain word is a figure or a kind of the document, even if a host has the same name.
        Value::String(text) if text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) => {}
        Value::String(text) => *text = mask.text(text),
        // The entries of a list belong to its key.
        Value::Array(values) => values.iter_mut().for_each(|value| apply(mask, value, parent, key)),
        Value::Object(map) => map.iter_mut().for_each(|(name, value)| apply(mask, value, key, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns true if a text is the name of a host, an interface or a hop, and nothing else.
fn is_name(parent: &str, key: &str) -> bool {
    matches!((parent, key), ("hosts", _) | (_, "host" | "gateway") | ("interface" | "nodes", "name"))
}

/// Returns the time at the start of a text (RFC 3339).
fn time(text: &str) -> String {
    text.chars().take(30).take_while(|c| c.is_ascii_digit() || "-:.TZ".contains(*c)).collect()
}

/// Returns the numbers of a version. The rest of a kernel's release is chosen by its builder.
fn version(release: &str) -> String {
    release.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::disk::DiskEvidence;
    use crate::evidence::{HostNames, PerEnd, TypedArgument};
    use crate::host::Note;
    use crate::measure::{EndReport, Kernel};
    use crate::report::{Origin, PlannedLoad, Unseen};

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
    fn saved_name_of_the_server_is_replaced_everywhere() {
        for server in ["labserver1", "labserver1:7323", "me@labserver1"] {
            let mut document = document();
            document.origin.hosts.far = server.into();
            document.origin.command = ["doctor", server].map(str::to_owned).to_vec();
            let run = &mut document.runs[0];
            run.evidence.hosts.far = server.into();
            run.evidence.arguments = vec![TypedArgument { flag: None, text: server.into() }];
            run.evidence.near.notes = vec![Note::warning("labserver1:7323 and LABSERVER1 are slow")];
            let masked = document.masked().unwrap();
            let text = serde_json::to_string(&masked).unwrap().to_lowercase();
            assert!(!text.contains("labserver1"), "{server}: {text}");
            assert_eq!(masked.runs[0].evidence.near.notes[0].message, "far:7323 and far are slow");
        }
    }

    #[test]
    fn an_address_has_one_replacement() {
        let mut document = document();
        document.origin.hosts.far = "10.9.8.7".into();
        document.origin.command = ["doctor", "10.9.8.7"].map(str::to_owned).to_vec();
        document.runs[0].evidence.hosts.far = "10.9.8.7".into();
        document.runs[0].evidence.arguments = vec![TypedArgument { flag: None, text: "10.9.8.7".into() }];
        let masked = document.masked().unwrap();
        let replacement = &masked.origin.hosts.far;
        assert!(replacement.starts_with("192.0.2."), "{replacement}");
        assert_eq!(&masked.origin.command[1], replacement);
        assert_eq!(&masked.runs[0].evidence.arguments[0].text, replacement);
        assert_eq!(&masked.runs[0].evidence.hosts.far, replacement);
    }

    #[test]
    fn paths_of_disks_are_replaced() {
        let mut document = document();
        let disk = |path: &str| Some(DiskEvidence { path: path.into(), ..DiskEvidence::default() });
        document.runs[0].evidence.disks = Some(Box::new(PerEnd { near: disk("/data/ann/my data"), far: disk("ann") }));
        document.origin.command =
            ["--disk", "/data/ann/my data", "--disk", "far.example.org:ann", "ann@x"].map(str::to_owned).to_vec();
        let masked = document.masked().unwrap();
        let disks = masked.runs[0].evidence.disks.clone().unwrap();
        assert_eq!((disks.near.unwrap().path, disks.far.unwrap().path), ("NEAR-PATH".into(), "FAR-PATH".into()));
        assert_eq!(masked.origin.command[..4], ["--disk", "NEAR-PATH", "--disk", "far:FAR-PATH"]);
    }

    #[test]
    fn path_of_a_disk_without_result_is_replaced() {
        let mut document = document();
        let command = ["--disk", "ann/raw data", "--disk=far.example.org:ann/set 7", "--disk"];
        document.origin.command = command.map(str::to_owned).to_vec();
        let unseen = |reason: &str| Unseen { part: "disk".into(), reason: reason.into(), consequence: String::new() };
        document.unseen = vec![unseen("cannot open ann/raw data: denied"), unseen("ann/set 7: no such directory")];
        let masked = document.masked().unwrap();
        assert_eq!(masked.origin.command, ["--disk", "NEAR-PATH", "--disk=far:FAR-PATH", "--disk"]);
        let reasons = masked.unseen.iter().map(|unseen| unseen.reason.as_str()).collect::<Vec<_>>();
        assert_eq!(reasons, ["cannot open NEAR-PATH: denied", "FAR-PATH: no such directory"]);
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
