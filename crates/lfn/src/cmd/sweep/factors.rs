//! Flags for the factors of a sweep: each has a list of values.

use lfn_api::sweep::SweepError;
use lfn_campaign::design::{Design, DesignError, FactorValues, Part};
use lfn_campaign::factor::Factor;
use lfn_campaign::values::parse_values;

use crate::exit::Failure;

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Factors")]
pub(super) struct FactorArgs {
    /// Fix the receive window of the receiving end at each of these sizes
    #[arg(short, long, value_name = "VALUES", allow_hyphen_values = true)]
    window: Option<String>,
    /// Fix the receive window of the server only
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    far_window: Option<String>,
    /// Limit the receive window to what each window scale can announce: 65,535 B · 2^N, with N from 0 to 14
    ///
    /// The kernel announces the smallest scale that fits the window.
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    window_scale: Option<String>,
    /// Set the send buffer (SO_SNDBUF) of both ends
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    sndbuf: Option<String>,
    /// Set the receive buffer (SO_RCVBUF) of both ends
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    rcvbuf: Option<String>,
    /// Set the length of a record, the bytes of one write
    #[arg(short = 'l', long, value_name = "VALUES", allow_hyphen_values = true)]
    length: Option<String>,
    /// Transmit this many records in each test instead of --time
    #[arg(short = 'k', long, value_name = "VALUES", allow_hyphen_values = true)]
    count: Option<String>,
    /// Run N parallel streams
    #[arg(short = 'P', long, value_name = "VALUES", allow_hyphen_values = true)]
    streams: Option<String>,
    /// Set the TCP congestion control of the sender, such as cubic or bbr
    #[arg(short = 'C', long, value_name = "VALUES")]
    congestion: Option<String>,
    /// Limit the rate of each stream
    #[arg(short = 'b', long, value_name = "VALUES", allow_hyphen_values = true)]
    pacing: Option<String>,
    /// Set the TCP maximum segment size in both directions
    #[arg(short = 'M', long, value_name = "VALUES", allow_hyphen_values = true)]
    mss: Option<String>,
    /// Set the direction of the data: forward, reverse or both in turn [default: forward]
    #[arg(long, value_name = "VALUES")]
    direction: Option<String>,
}

impl FactorArgs {
    /// Returns the given factors with their flags, in the order of columns.
    fn given(&self) -> impl Iterator<Item = (Factor, &String)> {
        let all = [
            (Factor::Window, &self.window),
            (Factor::FarWindow, &self.far_window),
            (Factor::WindowScale, &self.window_scale),
            (Factor::SendBuffer, &self.sndbuf),
            (Factor::ReceiveBuffer, &self.rcvbuf),
            (Factor::Record, &self.length),
            (Factor::Count, &self.count),
            (Factor::Streams, &self.streams),
            (Factor::Congestion, &self.congestion),
            (Factor::Pacing, &self.pacing),
            (Factor::Mss, &self.mss),
            (Factor::Direction, &self.direction),
        ];
        all.into_iter().filter_map(|(factor, text)| Some((factor, text.as_ref()?)))
    }

    /// Returns the first given factor.
    pub(super) fn first(&self) -> Option<Factor> {
        self.given().next().map(|(factor, _)| factor)
    }

    /// Returns the design of the flags, on top of that of a file. A flag replaces the factor in every part.
    pub(super) fn design(&self, mut file: Design) -> Result<Design, Failure> {
        if file.parts.is_empty() {
            file.parts.push(Part::default());
        }
        for (factor, text) in self.given() {
            let failed = |source| Failure::new(SweepError::Design(DesignError::Values { factor, source }));
            let values = parse_values(factor, text).map_err(failed)?;
            for part in &mut file.parts {
                part.factors.retain(|given| given.factor != factor);
                part.factors.push(FactorValues { factor, values: values.clone() });
                part.factors.sort_by_key(|given| given.factor);
            }
        }
        Ok(file)
    }
}
