//! The access list of an agent: its clients and its servers.

use std::collections::BTreeMap;

use lfn_session::{Ticket, join_host_port, split_host_port};

use super::Hub;
use crate::sites::{Host, HostKind, Sites};
use crate::sync::{AccessList, PairClient, PairTarget};

/// Default port of a STAMP reflector (RFC 8762).
const STAMP_PORT: u16 = 862;

impl Hub {
    /// Returns the clients and the servers of an agent. While the announced plan is not valid yet, these are the partners of both
    /// plans, without the hosts that are no longer in the sites file.
    pub(super) fn access_list(&self, agent: &str) -> AccessList {
        let (plans, file) = (self.plans.read().clone(), self.file.read().clone());
        let mut partners: BTreeMap<&str, &Host> = BTreeMap::new();
        for plan in plans.in_use((self.clock)()) {
            let hosts = plan.partners(agent).filter_map(|name| plan.sites.host(name));
            partners.extend(hosts.filter(|host| !is_removed(&file, host)).map(|host| (host.name.as_str(), host)));
        }
        let mut access = AccessList { stamp_key: self.secret.stamp_key(), ..AccessList::default() };
        for partner in partners.into_values() {
            if partner.kind == HostKind::Agent {
                let token = self.secret.pair_token(&partner.name, agent).hash();
                access.clients.push(PairClient { host: partner.name.clone(), token });
            }
            access.targets.push(self.target(agent, partner));
        }
        access
    }

    /// Returns how an agent reaches a host.
    fn target(&self, agent: &str, partner: &Host) -> PairTarget {
        let address = partner.address.as_deref().and_then(|address| split_host_port(address).ok());
        let servers = self.registry.agent(&partner.name).and_then(|agent| agent.servers);
        let stamp_at = |port: u16| address.as_ref().map(|(host, _)| join_host_port(host, port));
        let (ticket, stamp) = match partner.kind {
            HostKind::Agent => {
                let ticket = servers.zip(address.clone()).map(|(servers, (host, _))| Ticket {
                    host,
                    port: servers.port,
                    token: self.secret.pair_token(agent, &partner.name),
                    fingerprint: servers.fingerprint,
                });
                (
                    ticket.map(|ticket| ticket.to_string()),
                    servers.and_then(|servers| servers.stamp_port).and_then(stamp_at),
                )
            }
            HostKind::Serve => {
                (self.tickets.read().get(&partner.name).map(Ticket::to_string), partner.stamp_port.and_then(stamp_at))
            }
            HostKind::Stamp => {
                let port = address.as_ref().and_then(|(_, port)| *port);
                (None, stamp_at(port.unwrap_or(STAMP_PORT)))
            }
            HostKind::Iperf3 => (None, None),
        };
        let reachable = !partner.dial_only;
        PairTarget {
            host: partner.name.clone(),
            ticket: ticket.filter(|_| reachable),
            stamp: stamp.filter(|_| reachable),
        }
    }
}

/// Reports whether the sites file no longer has a host, or has it with another kind.
pub(super) fn is_removed(file: &Sites, host: &Host) -> bool {
    file.host(&host.name).is_none_or(|now| now.kind != host.kind)
}
