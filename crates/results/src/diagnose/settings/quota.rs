//! Limits of a container and of the memory of a host.

use serde_json::json;

use crate::diagnose::{Cause, Confidence, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::{Figures, StreamFigures, WorkerTime};

/// Minimum CPU demand of the data threads over the quota of the control group.
pub(in crate::diagnose) const MIN_QUOTA_SHARE: f64 = 0.8;

/// Finds a CPU quota that the threads of the load use up.
pub(in crate::diagnose) fn processor_quota(figures: &Figures) -> Option<Finding> {
    if figures.is_full() {
        return None;
    }
    type Thread = fn(&StreamFigures) -> Option<WorkerTime>;
    let ends: [(_, Thread); 2] =
        [(&figures.sender, |flow| flow.sender_thread), (&figures.receiver, |flow| flow.receiver_thread)];
    let (host, demand, quota) = ends.into_iter().find_map(|(host, thread)| {
        let group = host.facts.as_ref()?.control_group?;
        let quota = group.max_processors?.get();
        let demand: f64 = figures.streams.iter().filter_map(thread).map(|thread| thread.demand()).sum();
        (demand >= MIN_QUOTA_SHARE * quota && quota > 0.0).then_some((host, demand, quota))
    })?;
    let summary = format!(
        "the control group on {} may use {quota:.2} processors, and the data threads need {demand:.2}",
        host.name
    );
    let remedy = Remedy {
        command: "echo max > /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/cpu.max   # as root, in the same \
                  container or service"
            .into(),
        host: Some(host.name.clone()),
    };
    let mut finding = finding(figures, Cause::Processor, summary, remedy, figures.possible_goodput());
    finding.confidence = Some(Confidence::High);
    finding.evidence = figures_map([
        ("max_processors", json!(quota)),
        ("demand_processors", json!(demand)),
        ("throttled_seconds", json!(host.facts.as_ref().and_then(|facts| facts.control_group?.throttled_seconds))),
    ]);
    Some(finding)
}

/// Finds memory pressure of TCP, during which the kernel grows no buffer.
pub(in crate::diagnose) fn memory(figures: &Figures) -> Option<Finding> {
    if figures.is_full() {
        return None;
    }
    let (host, events) = [&figures.sender, &figures.receiver]
        .into_iter()
        .find_map(|host| host.memory_pressures.filter(|events| *events > 0).map(|events| (host, events)))?;
    let summary =
        format!("TCP on {} was short of memory {events} times (net.ipv4.tcp_mem), so buffers did not grow", host.name);
    let remedy = Remedy {
        command: "sysctl -w net.ipv4.tcp_mem=\"$(awk '{print 2*$1, 2*$2, 2*$3}' /proc/sys/net/ipv4/tcp_mem)\"".into(),
        host: Some(host.name.clone()),
    };
    let mut finding = finding(figures, Cause::Memory, summary, remedy, figures.possible_goodput());
    finding.confidence = Some(Confidence::High);
    finding.evidence = figures_map([("memory_pressures", json!(events))]);
    Some(finding)
}
