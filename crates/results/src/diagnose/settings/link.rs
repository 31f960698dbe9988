//! Link of a host: a rate below the capacity of the path, and half duplex.

use lfn_base::units::BitRate;
use serde_json::json;

use crate::diagnose::{Cause, Confidence, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::{Figures, HostFigures};
use crate::host::facts::Duplex;

/// Minimum goodput as a share of the link rate: headers take a twentieth.
pub(in crate::diagnose) const MIN_SHARE_OF_LINK: f64 = 0.85;

/// Finds a link of an end that is full and slower than the path.
pub(in crate::diagnose) fn link_rate(figures: &Figures) -> Option<Finding> {
    let path = figures.path?;
    let goodput = figures.steady_goodput();
    let (host, name, rate) = [&figures.sender, &figures.receiver].into_iter().find_map(|host| {
        let (name, rate) = link(host)?;
        let is_full = rate < path.capacity && goodput.as_f64() >= MIN_SHARE_OF_LINK * rate.as_f64() && goodput <= rate;
        is_full.then_some((host, name, rate))
    })?;
    let best = host.facts.as_ref().and_then(|facts| facts.interface.as_ref()?.max_rate).filter(|max| *max > rate);
    let more = best.map(|max| format!("; the device and its partner support {max}")).unwrap_or_default();
    let summary = format!(
        "the link {name} on {} has {rate}, less than the path ({}); goodput {goodput}{more}",
        host.name, path.capacity
    );
    let command = match best {
        Some(_) => format!("ethtool -s {name} autoneg on   # then check the cable: ethtool {name}"),
        None => format!("ethtool {name}   # supported rates, autonegotiation and cable"),
    };
    let remedy = Remedy { command, host: Some(host.name.clone()) };
    let mut finding = finding(figures, Cause::LinkRate, summary, remedy, figures.possible_goodput());
    finding.confidence = Some(Confidence::High);
    finding.evidence = figures_map([
        ("link_rate_bits_per_second", json!(rate.0)),
        ("max_link_rate_bits_per_second", json!(best.map(|max| max.0))),
        ("goodput_bits_per_second", json!(goodput.0)),
    ]);
    Some(finding)
}

/// Finds a link in half duplex: data and acknowledgements collide.
pub(in crate::diagnose) fn half_duplex(figures: &Figures) -> Option<Finding> {
    let (host, name) = [&figures.sender, &figures.receiver].into_iter().find_map(|host| {
        let facts = host.facts.as_ref()?.interface.as_ref()?;
        (facts.duplex == Some(Duplex::Half)).then(|| (host, facts.name.clone()))
    })?;
    let summary = format!("{name} on {} is in half duplex: data and acknowledgements share the link", host.name);
    let remedy = Remedy {
        command: format!("ethtool -s {name} autoneg on   # at both ends of the cable"),
        host: Some(host.name.clone()),
    };
    let mut finding = finding(figures, Cause::HalfDuplex, summary, remedy, figures.possible_goodput());
    finding.confidence = Some(Confidence::High);
    finding.evidence = figures_map([("goodput_bits_per_second", json!(figures.steady_goodput().0))]);
    Some(finding)
}

/// Returns the name and the rate of a host's link. A virtual interface has no real rate.
fn link(host: &HostFigures) -> Option<(&str, BitRate)> {
    if let Some(interface) = &host.interface
        && let (Some(rate), None, false) = (interface.rate, &interface.kind, interface.loopback)
    {
        return Some((interface.name.as_str(), rate));
    }
    let facts = host.facts.as_ref()?.interface.as_ref().filter(|facts| facts.kind.is_none())?;
    Some((facts.name.as_str(), facts.rate?))
}
