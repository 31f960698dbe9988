use lfn_packet::{TcpFlags, TcpOptions};

use super::*;

#[test]
fn many_connections_stay_within_the_limits() {
    let options = AnalysisOptions { max_open: 1000, max_finished: 400, ..AnalysisOptions::default() };
    let mut analysis = Analysis::new(options);
    let endpoint = |port| TcpEndpoint { address: core::net::Ipv4Addr::LOCALHOST.into(), port };
    for number in 0..20_000_u16 {
        let segment = TcpSegment {
            source: endpoint(number),
            destination: endpoint(50_000),
            ip_id: None,
            ttl: 64,
            ecn: 0,
            sequence: 1,
            acknowledgement: 1,
            flags: TcpFlags::ACK,
            window: 100,
            payload: 10,
            options: TcpOptions::default(),
        };
        analysis.add(Instant::from_nanos(u64::from(number)), &segment);
        assert!(analysis.open.len() <= 1000 && analysis.finished.len() <= 800);
        let closed = analysis.totals.evicted + analysis.open.len() as u64;
        assert_eq!(analysis.totals.connections, closed);
    }
}
