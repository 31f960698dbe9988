//! Why a copy was slower than predicted, in one sentence with its numbers, and what to do about it.
//!
//! The copy's own evidence is where its threads spent their time and what the sender's kernel said of its sockets, which is
//! enough to name the thing and not always its cause: `lfn test` looks deeper ([`crate::diagnose`]).

use std::time::Duration;

use serde::Serialize;

use super::limit::{Limit, Look, SocketEvidence};
use super::streams::MANY;
use crate::units::{BitRate, Bytes, show_duration};

/// Of the predicted goodput: what comes this close has nothing to be explained.
const AS_PREDICTED: f64 = 0.9;

/// Of a copy's time: a standstill of so much explains more than what is lost when it begins and ends.
const MUCH_OF_IT: f64 = 0.2;

/// Of what is missing: an outage that explains so much of it is what is told.
const MUCH_OF_WHAT_IS_MISSING: f64 = 0.5;

/// A copy that is over so soon shows what hosts take to begin and to end, and nothing of the path.
const TOO_SHORT: Duration = Duration::from_secs(1);

/// A copy that was slower than it should have been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shortfall {
    /// What held it back, with the numbers that show it.
    pub finding: String,
    /// What to change.
    pub cure: String,
}

/// What a finished copy is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Finished<'a> {
    /// Size over time.
    pub goodput: BitRate,
    /// The same as predicted.
    pub predicted: BitRate,
    /// What held it back over all.
    pub limit: Limit,
    /// Both sides at its end.
    pub look: &'a Look,
    /// How many streams it had.
    pub streams: u16,
    /// This host was the sender.
    pub near_sends: bool,
    /// How long there was no connection.
    pub without: Duration,
    /// How long nothing came though there was one.
    pub still: Duration,
}

/// Explains the difference, if there is one.
pub fn shortfall(finished: &Finished<'_>) -> Option<Shortfall> {
    let Finished { goodput, predicted, limit, look, streams, near_sends, without, still } = *finished;
    if predicted.0 == 0 || look.at < TOO_SHORT || goodput.as_f64() >= AS_PREDICTED * predicted.as_f64() {
        return None;
    }
    let sockets = look.sockets.unwrap_or_default();
    let thread_time = look.at.as_secs_f64() * f64::from(streams.max(1));
    let share = |seconds: f64| if thread_time > 0.0 { 100.0 * seconds / thread_time } else { 0.0 };
    let (source, destination) = if near_sends { ("near", "far") } else { ("far", "near") };
    let connected = look.at.saturating_sub(without).as_secs_f64() / look.at.as_secs_f64();
    let missing = 1.0 - goodput.as_f64() / predicted.as_f64();
    let of_the_path =
        matches!(limit, Limit::CongestionWindow | Limit::StartUp | Limit::LinkFull { .. } | Limit::Unknown);
    let was_fast_otherwise = goodput.as_f64() >= AS_PREDICTED * predicted.as_f64() * connected;
    let (why, cure) = match limit {
        _ if was_fast_otherwise
            || (of_the_path || limit == Limit::Cpu) && 1.0 - connected >= MUCH_OF_WHAT_IS_MISSING * missing =>
        {
            (
                format!("the connection, which was lost for {} of {}", show_duration(without), show_duration(look.at)),
                match was_fast_otherwise {
                    true => "see what cut it: as long as it was there, the copy was as fast as predicted".to_owned(),
                    false => "see what cut it: each time it is back, streams start up anew".to_owned(),
                },
            )
        }
        _ if of_the_path && still.as_secs_f64() >= MUCH_OF_IT * look.at.as_secs_f64() => (
            format!("a standstill: nothing came for {} of {}", show_duration(still), show_duration(look.at)),
            "see what cut the path then: the connection outlived it".to_owned(),
        ),
        Limit::SourceDisk => (
            format!("the {source} disk: reading took {:.0} % of the sending threads' time", share(look.sender.disk)),
            "copy random:1GiB instead of the files to see what the path carries without it".to_owned(),
        ),
        Limit::DestinationDisk => (
            format!(
                "the {destination} disk: writing took {:.0} % of the receiving threads' time",
                share(look.receiver.disk)
            ),
            "copy to null: instead to see what the path carries without it".to_owned(),
        ),
        Limit::Cpu => (
            format!(
                "the processors: hashing took {} of the {source} host and {} of the {destination} one, the network had none to wait for",
                seconds(look.sender.hash),
                seconds(look.receiver.hash)
            ),
            "--verify xxh3 costs less; --clear-data too, on a private circuit".to_owned(),
        ),
        Limit::Granted => (
            format!("the server, which keeps its clients to a rate: streams waited {} for it", held_for(look)),
            "whoever runs it may grant more: --max-rate, --client-rate, or the token's --rate".to_owned(),
        ),
        Limit::ReceiveWindow => (
            format!(
                "the receive window: {} in all, where the path holds {}",
                sockets.receive_window,
                held(predicted, &sockets)
            ),
            format!("raise net.ipv4.tcp_rmem on the {destination} host to what `lfn plan` says, or use more --streams"),
        ),
        Limit::SendBuffer => (
            format!("the send buffer: streams waited {} for it", seconds(sockets.sndbuf_limited_seconds)),
            format!("raise net.ipv4.tcp_wmem on the {source} host to what `lfn plan` says, or use more --streams"),
        ),
        Limit::CongestionWindow if sockets.congestion_window >= held(predicted, &sockets) => (
            format!(
                "loss: {} segments were sent again, while the congestion window, {} in all, was more than the {} that the path holds",
                sockets.retransmits,
                sockets.congestion_window,
                held(predicted, &sockets)
            ),
            "`lfn test` to the same host tells a path that loses from streams that overfill its queue".to_owned(),
        ),
        Limit::CongestionWindow => (
            format!(
                "the congestion window: {} in all, where the path holds {}; {} segments were sent again",
                sockets.congestion_window,
                held(predicted, &sockets),
                sockets.retransmits
            ),
            "--congestion bbr where the path loses, more --streams where it does not".to_owned(),
        ),
        Limit::StartUp => (
            format!("start-up: {} of {streams} streams were still in it at the end", sockets.in_slow_start),
            match streams {
                ..MANY => "more --streams start up faster together".to_owned(),
                _ => "it takes that once: the more is copied at a time, the less it matters".to_owned(),
            },
        ),
        Limit::LinkFull { .. } | Limit::Unknown => {
            ("nothing that these numbers show".to_owned(), "`lfn test` to the same host looks deeper".to_owned())
        }
    };
    let percent = 100.0 * goodput.as_f64() / predicted.as_f64();
    Some(Shortfall { finding: format!("{percent:.0} % of the predicted {predicted}; it was held back by {why}"), cure })
}

fn held_for(look: &Look) -> String {
    seconds(look.sender.held + look.receiver.held)
}

fn seconds(seconds: f64) -> String {
    show_duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// The bandwidth-delay product.
fn held(rate: BitRate, sockets: &SocketEvidence) -> Bytes {
    Bytes((rate.as_f64() / 8.0 * sockets.min_rtt_seconds) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::limit::Shares;

    fn finished(look: &Look, limit: Limit, goodput: u64) -> Option<Shortfall> {
        let (goodput, predicted) = (BitRate(goodput), BitRate(100_000_000));
        shortfall(&Finished {
            goodput,
            predicted,
            limit,
            look,
            streams: 4,
            near_sends: true,
            without: Duration::ZERO,
            still: Duration::ZERO,
        })
    }

    #[test]
    fn what_comes_close_needs_no_words() {
        let look = Look { at: Duration::from_secs(5), ..Look::default() };
        assert_eq!(finished(&Look::default(), Limit::Unknown, 10_000_000), None, "too short");
        assert_eq!(finished(&look, Limit::SourceDisk, 95_000_000), None);
        assert_eq!(finished(&look, Limit::Unknown, 200_000_000), None);
        assert!(finished(&look, Limit::Unknown, 10_000_000).is_some());
        let cut = |seconds| Finished {
            goodput: BitRate(50_000_000),
            predicted: BitRate(100_000_000),
            limit: Limit::StartUp,
            look: &look,
            streams: 4,
            near_sends: true,
            without: Duration::from_secs(seconds),
            still: Duration::ZERO,
        };
        let lost = |seconds| shortfall(&cut(seconds)).unwrap().finding.contains("the connection, which was lost for");
        // More than half of what is missing.
        assert_eq!([1, 2, 3].map(lost), [false, true, true]);
        // An outage that no connection breaks at looks like loss.
        let stood = |limit| {
            let finished = Finished { limit, still: Duration::from_secs(2), ..cut(0) };
            shortfall(&finished).unwrap().finding.contains("nothing came for 2 s of 5 s")
        };
        assert!(stood(Limit::CongestionWindow) && stood(Limit::Unknown) && !stood(Limit::SourceDisk));
    }

    /// A window of more than the path holds did not hold back: what was lost did.
    #[test]
    fn a_wide_congestion_window_is_no_limit() {
        let sockets = SocketEvidence {
            congestion_window: Bytes(7_000_000),
            retransmits: 77,
            min_rtt_seconds: 0.5,
            ..SocketEvidence::default()
        };
        let look = Look { at: Duration::from_secs(10), bytes: Bytes(1), sockets: Some(sockets), ..Look::default() };
        let Shortfall { finding, cure } = finished(&look, Limit::CongestionWindow, 10_000_000).unwrap();
        assert!(finding.contains("loss: 77 segments") && finding.contains("more than the 6.25 MB"), "{finding}");
        assert!(cure.contains("lfn test"), "{cure}");
    }

    #[test]
    fn each_limit_has_its_numbers_and_its_cure() {
        let sockets = SocketEvidence {
            receive_window: Bytes(1_000_000),
            congestion_window: Bytes(2_000_000),
            retransmits: 77,
            min_rtt_seconds: 0.5,
            sndbuf_limited_seconds: 3.0,
            in_slow_start: 3,
            ..SocketEvidence::default()
        };
        let shares = |disk, hash| Shares { disk, hash, network: 0.0, held: 2.0 };
        let (sender, receiver) = (shares(20.0, 1.0), shares(30.0, 2.0));
        let look = Look { at: Duration::from_secs(10), bytes: Bytes(1), sender, receiver, sockets: Some(sockets) };
        for (limit, number, cure) in [
            (Limit::SourceDisk, "near disk: reading took 50 %", "random:"),
            (Limit::DestinationDisk, "far disk: writing took 75 %", "null:"),
            (Limit::Cpu, "hashing took 1 s of the near host and 2 s", "xxh3"),
            (Limit::Granted, "streams waited 4 s for it", "--max-rate"),
            (Limit::ReceiveWindow, "1 MB in all, where the path holds 6.25 MB", "tcp_rmem on the far host"),
            (Limit::SendBuffer, "waited 3 s", "tcp_wmem on the near host"),
            (Limit::CongestionWindow, "77 segments", "bbr"),
            (Limit::StartUp, "3 of 4", "--streams"),
            (Limit::Unknown, "nothing", "lfn test"),
        ] {
            let Shortfall { finding, cure: said } = finished(&look, limit, 10_000_000).unwrap();
            assert!(finding.starts_with("10 % of the predicted 100 Mb/s; ") && finding.contains(number), "{finding}");
            assert!(said.contains(cure), "{said}");
        }
    }
}
