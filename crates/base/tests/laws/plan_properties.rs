//! A plan of any path is finite and within TCP's limits, or an error. It never panics.

use std::time::Duration;

use lfn_base::framing::{Framing, IpVersion, Layer, Tunnel};
use lfn_base::path::PathProfile;
use lfn_base::plan::{MAX_WINDOW, PlanOptions, minimal_window_scale, plan, predict_goodput};
use lfn_base::tcp_model::Congestion;
use lfn_base::units::{BitRate, Bytes, Ratio};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

const LAYERS: [Layer; 7] =
    [Layer::EthernetHeader, Layer::Ethernet, Layer::Ip, Layer::AtmAal5, Layer::PppHdlc, Layer::Ppp, Layer::Hippi];

fn framings() -> impl Strategy<Value = Framing> {
    let tunnel = option::of(select(vec![Tunnel::Wireguard, Tunnel::IpsecEsp]));
    let ip = select(vec![IpVersion::V4, IpVersion::V6]);
    (select(LAYERS.to_vec()), ip, any::<bool>(), 0..3_u8, tunnel).prop_map(
        |(layer, ip, without_timestamps, vlan_tags, tunnel)| Framing {
            layer,
            ip,
            without_timestamps,
            vlan_tags,
            tunnel,
        },
    )
}

/// Values spread over orders of magnitude, so that small and large ones are equally likely: 10^0 to 10^`max`.
fn magnitudes(max: f64) -> impl Strategy<Value = u64> {
    (0.0..max).prop_map(|exponent| 10_f64.powf(exponent) as u64)
}

/// 1 b/s to 100 Tb/s, 1 ns to 3 years, any MTU, any loss (mostly near zero).
fn paths() -> impl Strategy<Value = PathProfile> {
    let figures = (magnitudes(14.0), magnitudes(17.0), 0..70_000_u32, 0.0..=1.0_f64);
    (figures, framings(), option::of(any::<u64>())).prop_map(|((rate, nanos, mtu, loss), framing, queue)| PathProfile {
        capacity: BitRate(rate),
        base_rtt: Duration::from_nanos(nanos),
        mtu,
        framing,
        queue: queue.map(Bytes),
        loss: Ratio::new(loss.powi(8)).unwrap_or_default(),
    })
}

fn options() -> impl Strategy<Value = PlanOptions> {
    let controls = select(vec![Congestion::Reno, Congestion::Cubic, Congestion::Bbr]);
    let limits = (option::of(0..70_000_u32), magnitudes(19.0), option::of(magnitudes(10.0)), option::of(0..16_u8));
    (option::of(magnitudes(18.0)), limits, controls, any::<(u32, bool)>()).prop_map(
        |(size, (streams, max_buffer, window, window_scale), congestion, (initial_window, delayed_ack))| PlanOptions {
            size: size.map(Bytes),
            streams,
            max_buffer: Bytes(max_buffer),
            window: window.map(Bytes),
            window_scale,
            congestion,
            initial_window,
            delayed_ack,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_path_has_a_plan_or_an_error(path in paths(), options in options()) {
        let Ok(plan) = plan(&path, &options) else { return Ok(()) };
        prop_assert!(plan.buffer <= MAX_WINDOW && plan.buffer <= options.max_buffer);
        prop_assert!(plan.streams >= 1 && plan.window_scale <= 14);
        if options.window_scale.is_none() {
            prop_assert_eq!(minimal_window_scale(plan.buffer), Some(plan.window_scale));
        }
        prop_assert!(plan.buffer_rounded >= plan.buffer);
        let predicted = plan.predicted;
        prop_assert!(predicted.steady.goodput <= path.payload_capacity());
        prop_assert_eq!(predicted.time.is_some(), options.size.is_some());
        if let Some(time) = predicted.time {
            prop_assert!(time >= predicted.slow_start && time >= path.base_rtt);
        }
        // serde_json writes NaN and infinities as null, so the test checks for numbers.
        let json = serde_json::to_value(&plan).unwrap();
        for key in ["rtt_seconds", "loss_budget", "capacity_bits_per_second"] {
            prop_assert!(json[key].is_number(), "{}", key);
        }
        for key in ["goodput_bits_per_second", "slow_start_seconds", "idle_share"] {
            prop_assert!(json["predicted"][key].is_number(), "{}", key);
        }
        prop_assert!(!plan.reasons.iter().any(|reason| reason.contains("NaN") || reason.contains("inf ")));
    }

    #[test]
    fn more_window_or_less_loss_never_lowers_goodput(path in paths(), window in 1..1_u64 << 30, more in 1..1_u64 << 30) {
        let goodput = |path: &PathProfile, window| predict_goodput(path, Some(Bytes(window)), 1).goodput;
        prop_assert!(goodput(&path, window) <= goodput(&path, window + more));
        let clean = PathProfile { loss: Ratio::default(), ..path };
        prop_assert!(goodput(&path, window) <= goodput(&clean, window));
    }

    #[test]
    fn the_buffers_together_hold_the_bdp(rate in magnitudes(12.0), nanos in magnitudes(10.0)) {
        let path = PathProfile::new(BitRate(rate), Duration::from_nanos(nanos));
        let plan = plan(&path, &PlanOptions::default()).unwrap();
        prop_assert!(plan.buffer.0 * u64::from(plan.streams) >= path.bdp().0);
    }
}
