//! The verb `plan`: from a path to the settings of its hosts and the expected result. The arithmetic is in
//! [`lfn_base::plan`].
//!
//! [`plan()`] sends nothing and changes nothing. It reads the settings of this host if the request is for this host.

mod error;
mod host;
mod report;
mod request;

use lfn_base::plan::advice::advice;
use lfn_base::plan::settings::{TargetHost, needed_settings};

pub use error::PlanRequestError;
pub use report::{HostSource, NamedRoute, NextCommand, PlanReport, SAVED_VALUES, rounded};
pub use request::{PlanHost, PlanRequest, RoundTrip};

/// Plans for the path of the request: settings of the host, advice and the expected result.
pub fn plan(request: &PlanRequest) -> Result<PlanReport, PlanRequestError> {
    let capacity = request.capacity()?;
    let (rtt, route) = request.route()?;
    let path = request.path(capacity, rtt)?;
    let (source, host) = request.host_settings();
    let target = host.as_ref().map_or(TargetHost::Unknown, TargetHost::Known);
    let options = request.options(&path, target)?;
    let plan = lfn_base::plan::plan(&path, &options)?;
    Ok(PlanReport {
        settings_file: host::settings_file("/etc/sysctl.d", source == HostSource::ThisHost),
        settings: needed_settings(&plan, options.max_buffer, options.congestion, target),
        advice: advice(&plan, &options),
        plan,
        requested_congestion: request.congestion.is_some(),
        source,
        host,
        link: request.link.as_ref().map(|link| link.name.clone()),
        route,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::time::Duration;

    use lfn_base::units::BitRate;

    use super::*;

    fn request(rate: Option<BitRate>, link: Option<&str>) -> PlanRequest {
        PlanRequest {
            rate,
            link: link.map(|name| name.parse().unwrap()),
            host: PlanHost::Other,
            ..PlanRequest::new(RoundTrip::Time(Duration::from_millis(70)))
        }
    }

    #[test]
    fn contradicting_options_are_errors() {
        assert_eq!(plan(&request(None, None)).unwrap_err(), PlanRequestError::NoCapacity);
        let bare = plan(&request(None, Some("ethernet"))).unwrap_err();
        assert!(matches!(bare, PlanRequestError::LinkWithoutRate { .. }), "{bare}");
        let above = plan(&request(Some(BitRate(20_000_000_000)), Some("ethernet-10g"))).unwrap_err();
        assert!(matches!(above, PlanRequestError::RateAboveLink { .. }), "{above}");
        let tagged = PlanRequest { vlan_tags: 1, ..request(None, Some("oc3c-atm")) };
        assert!(matches!(plan(&tagged).unwrap_err(), PlanRequestError::VlanWithoutEthernet(_)));
        let long = PlanRequest { mtu: Some(65_536), ..request(Some(BitRate(1)), None) };
        assert_eq!(plan(&long).unwrap_err(), PlanRequestError::MtuTooLarge(65_536));
    }

    #[test]
    fn another_host_needs_all_settings() {
        let report = plan(&request(Some(BitRate(1_000_000_000)), None)).unwrap();
        assert_eq!(report.source, HostSource::Unknown);
        assert!(!report.settings.is_empty() && report.document().undo.len() == 2);
    }
}
