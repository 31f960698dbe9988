//! Congestion control: the number of segments in flight and the pacing rate.
//!
//! Each file has one implementation. Windows are in segments and fractional. The sender, not the congestion control,
//! decides which segments are lost and when to send them again. The sender requests at most one reduction per round
//! trip and applies it by proportional rate reduction (RFC 6937).

mod algorithm;
mod bbr;
mod cubic;
mod hystart;
mod reno;

pub(super) use algorithm::{AckSample, CongestionControl};

use lfn_base::tcp_model::Congestion;

use super::TcpSettings;

/// Creates the congestion control of a new connection.
pub(super) fn create_control(settings: &TcpSettings, stream: u32) -> Box<dyn CongestionControl + Send> {
    let first = f64::from(settings.initial_window.max(1));
    match settings.congestion {
        Congestion::Reno => Box::new(reno::Reno::new(first)),
        Congestion::Cubic => Box::new(cubic::Cubic::new(first, settings.hystart)),
        Congestion::Bbr => Box::new(bbr::Bbr::new(first, settings.range_segments, stream)),
    }
}
