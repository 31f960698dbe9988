//! Checks of the options that need no server.

use lfn_base::units::BitRate;
use lfn_results::measure::{DEFAULT_READ, Modes, PayloadData, TestDirection, TestLoad};

use super::iperf3_parameters;
use super::option_error::{TcpOption, TestOptionsError};
use super::options::TestOptions;
use super::path::known_paths;
use crate::emulator_env::EmulatorEnvironment;

impl TestOptions {
    /// Refuses options that contradict each other. The environment has the figures of an emulated path.
    pub fn check(&self, environment: &EmulatorEnvironment) -> Result<(), TestOptionsError> {
        self.check_directions()?;
        self.check_sockets()?;
        for check in [self.request(TestDirection::Forward).check(), self.near_socket.check()] {
            check?;
        }
        if let Some(omit) = self.omit
            && matches!(self.request.load, TestLoad::TimeSeconds(time) if omit >= time)
        {
            return Err(TestOptionsError::OmitTooLong(omit));
        }
        if self.path.is_some() && self.bind_addresses.iter().any(|source| source.interface.is_some()) {
            return Err(TestOptionsError::PathFromInterface);
        }
        if self.tuned {
            self.check_plan(environment)?;
        }
        if self.rate == Some(BitRate(0)) {
            return Err(TestOptionsError::ZeroCapacity);
        }
        known_paths(self.rate, environment)?;
        if let Some(iperf3) = &self.iperf3 {
            iperf3_parameters::host_and_port(&self.server)?;
            iperf3_parameters::parameters(self, iperf3)?;
        }
        Ok(())
    }

    /// Refuses options of a comparison that contradict each other.
    pub fn check_comparison(&self, environment: &EmulatorEnvironment) -> Result<(), TestOptionsError> {
        let excluded = [
            ("tuned streams", self.tuned),
            ("path discovery", self.path.is_some()),
            ("both directions at the same time", self.bidirectional),
        ];
        if let Some((what, _)) = excluded.into_iter().find(|(_, given)| *given) {
            return Err(TestOptionsError::Comparison(what));
        }
        TestOptions { tuned: true, ..self.clone() }.check(environment)
    }

    fn check_directions(&self) -> Result<(), TestOptionsError> {
        if self.directions.is_empty() {
            return Err(TestOptionsError::NoDirection);
        }
        let both = [TestDirection::Forward, TestDirection::Reverse];
        if self.bidirectional && self.directions != both {
            return Err(TestOptionsError::NotBothDirections);
        }
        Ok(())
    }

    /// Refuses socket options that the kind of the streams does not support.
    fn check_sockets(&self) -> Result<(), TestOptionsError> {
        let (request, near) = (&self.request, &self.near_socket);
        let has_window = near.window.or(request.socket.window).is_some();
        if request.udp.is_some() {
            // An iperf3 server has one buffer size, which its datagrams use too.
            let is_lfn = self.iperf3.is_none();
            let given = [
                (TcpOption::RatePerStream, near.pacing.len() > 1 || request.socket.pacing.len() > 1),
                (TcpOption::Congestion, !near.congestion.is_empty() || !request.socket.congestion.is_empty()),
                (TcpOption::Mptcp, near.mptcp),
                (TcpOption::Mss, near.mss.is_some()),
                (TcpOption::NoCopy, request.modes != Modes::default()),
                (TcpOption::BindAddresses, self.bind_addresses.len() > 1),
                (TcpOption::Window, is_lfn && has_window),
                (TcpOption::ReadLength, is_lfn && request.read != DEFAULT_READ),
                (TcpOption::Zeros, is_lfn && request.data == PayloadData::Zero),
                (TcpOption::PayloadCheck, request.check),
                (TcpOption::BlockTiming, request.blocks),
                (TcpOption::Lockstep, request.lockstep),
                (TcpOption::Precision, self.target_precision.is_some()),
            ];
            if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
                return Err(TestOptionsError::Datagrams(option));
            }
        }
        let given = [(TcpOption::Window, has_window), (TcpOption::Pacing, !near.pacing.is_empty())];
        match given.into_iter().find(|(_, given)| near.mptcp && *given) {
            Some((option, _)) => Err(TestOptionsError::Multipath(option)),
            None => Ok(()),
        }
    }

    /// Refuses settings of a plan for loads without a plan.
    fn check_plan(&self, environment: &EmulatorEnvironment) -> Result<(), TestOptionsError> {
        if self.request.udp.is_some() {
            return Err(TestOptionsError::PlanForDatagrams);
        }
        if self.iperf3.is_some() {
            return Err(TestOptionsError::PlanForIperf3);
        }
        if known_paths(self.rate, environment)?.is_incomplete() {
            return Err(TestOptionsError::UnknownCapacity);
        }
        Ok(())
    }
}
