//! `lfn serve --stamp`: a STAMP reflector in the same process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use lfn_core::stamp::reflector::{ReflectorLimits, ReflectorTally};
use lfn_net::limits::access::Access;
use lfn_net::stamp::{ReflectorConfig, StampKey, StampReflector};

use crate::exit::Failure;
use crate::print;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "STAMP reflector (RFC 8762)")]
pub(super) struct StampServeArgs {
    /// Reflect STAMP and TWAMP Light packets on this UDP port [default port: 862, which needs root]
    ///
    /// --allow and --deny apply to the senders.
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "862")]
    stamp: Option<u16>,
    /// Accept only packets that are authenticated with the key in this file
    #[arg(long, value_name = "FILE", requires = "stamp")]
    stamp_key: Option<PathBuf>,
    /// Do not count packets; senders then cannot see in which direction a packet was lost
    #[arg(long, requires = "stamp")]
    stamp_stateless: bool,
}

impl StampServeArgs {
    /// Starts the reflector if requested. Returns its address and a function that reads its counters. The reflector
    /// ends with `stop`.
    pub(super) fn start(
        &self,
        bind: Option<IpAddr>,
        access: Access,
        stop: Arc<AtomicBool>,
    ) -> Result<Option<(SocketAddr, impl Fn() -> ReflectorTally + Send + Sync + use<>)>, Failure> {
        let Some(port) = self.stamp else { return Ok(None) };
        let reflecting = self.listen(bind, port, access)?;
        let (listen, tally) = (reflecting.local_addr()?, reflecting.tally());
        print::message(format_args!("STAMP reflector at {listen}\n"));
        thread::Builder::new().name("STAMP reflector".into()).spawn(move || reflecting.run(&stop))?;
        Ok(Some((listen, tally)))
    }

    fn listen(&self, bind: Option<IpAddr>, port: u16, access: Access) -> Result<StampReflector, Failure> {
        let key = self.stamp_key.as_deref().map(StampKey::read).transpose().map_err(|error| {
            Failure::usage(error).hint("create a key for both ends: head -c 32 /dev/urandom | base64 > FILE")
        })?;
        // All addresses, IPv6 and IPv4, if the host has IPv6.
        let wildcards = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
        let mut last = None;
        for address in bind.map_or(wildcards.to_vec(), |address| vec![address]) {
            let config = ReflectorConfig {
                listen: SocketAddr::new(address, port),
                is_stateful: !self.stamp_stateless,
                key: key.clone(),
                access: access.clone(),
                limits: ReflectorLimits::default(),
            };
            match StampReflector::bind(config) {
                Ok(reflecting) => return Ok(reflecting),
                Err(error) => last = Some((address, error)),
            }
        }
        let (address, error) = last.ok_or_else(|| Failure::msg("no address to reflect at"))?;
        let listen = SocketAddr::new(address, port);
        Err(Failure::msg(format!("cannot reflect STAMP packets at {listen}: {error}"))
            .hint("ports below 1024 need root; use another port: --stamp=8620"))
    }
}
