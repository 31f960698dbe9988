//! The client of a test between two hosts: the host that runs the test, while the other one serves.

use crate::entry::EntryKind;
use crate::sites::{Host, HostKind};

/// Reasons why no test of a kind is possible between two hosts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum ExclusionReason {
    #[error("both hosts are dial-only: neither accepts connections")]
    BothDialOnly,
    #[error("neither host runs an agent")]
    NoAgent,
    #[error("{host} is a host of kind {kind}, which does not serve this test")]
    NotServed { host: String, kind: &'static str },
    #[error("{host} is a host of kind serve without stamp-port, the port of its reflector")]
    NoReflector { host: String },
    #[error("{host} is dial-only, and {other} runs no agent")]
    NoClient { host: String, other: String },
}

/// Returns true if the sender is the client of a test, false if the receiver is. The sender is the client if it can be.
pub fn sender_is_client(from: &Host, to: &Host, kind: EntryKind) -> Result<bool, ExclusionReason> {
    if can_run(from, to, kind) {
        return Ok(true);
    }
    if can_run(to, from, kind) {
        return Ok(false);
    }
    if from.dial_only && to.dial_only {
        return Err(ExclusionReason::BothDialOnly);
    }
    if let Some(host) = [from, to].into_iter().find(|host| host.lacks_reflector(kind)) {
        return Err(ExclusionReason::NoReflector { host: host.name.clone() });
    }
    if let Some(host) = [from, to].into_iter().find(|host| !host.serves(kind)) {
        return Err(ExclusionReason::NotServed { host: host.name.clone(), kind: host.kind.name() });
    }
    if from.kind != HostKind::Agent && to.kind != HostKind::Agent {
        return Err(ExclusionReason::NoAgent);
    }
    let (host, other) = if from.dial_only { (from, to) } else { (to, from) };
    Err(ExclusionReason::NoClient { host: host.name.clone(), other: other.name.clone() })
}

/// Reports whether `client` can run a test of the kind against `server`.
pub fn can_run(client: &Host, server: &Host, kind: EntryKind) -> bool {
    client.kind == HostKind::Agent && server.serves(kind) && (!server.dial_only || is_one_sided(server, kind))
}

/// Reports whether a test needs no connection to the host: the path to an address can be traced without a server.
fn is_one_sided(server: &Host, kind: EntryKind) -> bool {
    kind == EntryKind::Path && server.address.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::excluded_continuous;
    use crate::sites::Sites;

    #[test]
    fn a_server_has_latency_tests_only_with_a_stamp_port() {
        let excluded = |keys: &str| {
            let text = format!(
                "name = \"m\"\n[[site]]\nname = \"a\"\naddress = \"h1\"\n\
                 [[site]]\nname = \"b\"\naddress = \"h2\"\nkind = \"serve\"\n{keys}\
                 [[test]]\nname = \"t\"\nkind = \"latency\"\ninterval = \"1min\"\n"
            );
            excluded_continuous(&Sites::parse(&text).unwrap())
        };
        assert!(excluded("stamp-port = 8620\n").is_empty());
        let reasons: Vec<ExclusionReason> = excluded("").into_iter().map(|pair| pair.reason).collect();
        let reason = ExclusionReason::NoReflector { host: "b".to_owned() };
        assert_eq!(reasons, [reason.clone(), reason]);
    }
}
