//! Limits of [`HostFacts`] of a peer: lengths of texts, and numbers of entries.
//!
//! A remedy may contain a name from the facts, and the user pastes the remedy into a shell. Names therefore lose every
//! character that is special to a shell.

use std::collections::BTreeMap;

use super::facts::HostFacts;

/// Maximum characters of a name.
const MAX_NAME: usize = 64;
/// Maximum characters of a sentence or a value.
const MAX_TEXT: usize = 256;
/// Maximum entries of a list or a map.
const MAX_ENTRIES: usize = 128;

impl HostFacts {
    /// Shortens texts, lists and maps to the maximum that a host reports, and replaces characters that are special to a
    /// shell in names and values.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        shorten(&mut self.release, MAX_NAME);
        self.sysctls = entries(self.sysctls, value);
        self.congestion_available = list(self.congestion_available, name);
        self.congestion_allowed = list(self.congestion_allowed, name);
        self.unreadable = list(self.unreadable, |mut text| {
            shorten(&mut text, MAX_TEXT);
            text
        });
        self.processor_model.iter_mut().for_each(|text| shorten(text, MAX_TEXT));
        // Several governors have a comma between them.
        self.governor = self.governor.take().map(value);
        let names = [&mut self.clock_source, &mut self.container];
        names.into_iter().for_each(|text| *text = text.take().map(name));
        if let Some(interface) = &mut self.interface {
            interface.name = name(std::mem::take(&mut interface.name));
            let names = [&mut interface.kind, &mut interface.driver, &mut interface.root_qdisc];
            names.into_iter().for_each(|text| *text = text.take().map(name));
            interface.offloads = entries(std::mem::take(&mut interface.offloads), |is_on| is_on);
            interface.qdiscs.truncate(MAX_ENTRIES);
            for qdisc in &mut interface.qdiscs {
                let names = [&mut qdisc.kind, &mut qdisc.handle, &mut qdisc.parent];
                names.into_iter().for_each(|text| *text = name(std::mem::take(text)));
            }
        }
        if let Some(route) = &mut self.route {
            let names = [&mut route.gateway, &mut route.congestion];
            names.into_iter().for_each(|text| *text = text.take().map(name));
            route.metrics = entries(std::mem::take(&mut route.metrics), |value| value);
        }
        self
    }
}

fn entries<T>(map: BTreeMap<String, T>, bounded: impl Fn(T) -> T) -> BTreeMap<String, T> {
    map.into_iter().take(MAX_ENTRIES).map(|(key, value)| (name(key), bounded(value))).collect()
}

fn list(texts: Vec<String>, bounded: impl Fn(String) -> String) -> Vec<String> {
    texts.into_iter().take(MAX_ENTRIES).map(bounded).collect()
}

/// Returns a name without characters that are special to a shell.
fn name(text: String) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "._:-@+/".contains(c);
    text.chars().take(MAX_NAME).map(|c| if is_plain(c) { c } else { '_' }).collect()
}

/// Returns the value of a setting, which may be several numbers or names.
fn value(text: String) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "._:-@+/, \t".contains(c);
    text.chars().take(MAX_TEXT).map(|c| if is_plain(c) { c } else { '_' }).collect()
}

fn shorten(text: &mut String, max_chars: usize) {
    if let Some((end, _)) = text.char_indices().nth(max_chars) {
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Qdisc;
    use crate::host::facts::{InterfaceFacts, RouteFacts};

    #[test]
    fn long_and_many_texts_are_shortened() {
        let long = "ü".repeat(10_000);
        let facts = HostFacts {
            release: long.clone(),
            sysctls: (0..1000).map(|number| (format!("a{number}"), long.clone())).collect(),
            unreadable: vec![long.clone(); 1000],
            interface: Some(InterfaceFacts {
                name: long.clone(),
                qdiscs: vec![Qdisc { kind: long, ..Qdisc::default() }; 1000],
                ..InterfaceFacts::default()
            }),
            ..HostFacts::default()
        };
        let facts = facts.bounded();
        let interface = facts.interface.as_ref().unwrap();
        assert_eq!((facts.sysctls.len(), facts.unreadable.len(), interface.qdiscs.len()), (128, 128, 128));
        assert_eq!((facts.release.chars().count(), facts.sysctls["a0"].chars().count()), (64, 256));
        assert!(serde_json::to_string(&facts).unwrap().len() < 256 << 10);
    }

    #[test]
    fn names_cannot_hold_commands() {
        let facts = HostFacts {
            congestion_allowed: vec!["bbr;reboot".into()],
            sysctls: [("net.core.x".to_owned(), "4096 $(reboot)\n1".to_owned())].into(),
            interface: Some(InterfaceFacts { name: "eth0`reboot`".into(), ..InterfaceFacts::default() }),
            route: Some(RouteFacts { gateway: Some("fe80::1%eth0 & x".into()), ..RouteFacts::default() }),
            ..HostFacts::default()
        };
        let facts = facts.bounded();
        assert_eq!(facts.congestion_allowed, ["bbr_reboot"]);
        assert_eq!(facts.sysctls["net.core.x"], "4096 __reboot__1");
        assert_eq!(facts.interface.unwrap().name, "eth0_reboot_");
        assert_eq!(facts.route.unwrap().gateway.as_deref(), Some("fe80::1_eth0___x"));
    }

    #[test]
    fn facts_of_a_real_host_stay_as_they_are() {
        let facts = HostFacts {
            release: "6.8.0-49-generic".into(),
            sysctls: [("net.ipv4.tcp_rmem".to_owned(), "4096\t131072\t33554432".to_owned())].into(),
            congestion_available: vec!["reno".into(), "cubic".into()],
            interface: Some(InterfaceFacts { name: "enp0s31f6.100".into(), ..InterfaceFacts::default() }),
            processor_model: Some("Intel(R) Xeon(R) CPU @ 2.20GHz".into()),
            unreadable: vec!["stored TCP metrics: operation not permitted".into()],
            ..HostFacts::default()
        };
        assert_eq!(facts.clone().bounded(), facts);
    }
}
