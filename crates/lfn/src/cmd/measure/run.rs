//! Choice of the kind of test, and its result.

use lfn_core::report::HostNames;

use super::{TestArgs, iperf3, origin};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::measure::Printer;

/// Runs `lfn test` and returns its exit code.
pub fn run(args: TestArgs) -> Result<Exit, Failure> {
    if args.report.list_findings {
        return print::findings::print(args.report.output.open()?).map(|()| Exit::Ok);
    }
    if let Some(host) = &args.stamp.stamp {
        return args.stamp.run(host, args.report.output.open()?);
    }
    if let Some(server) = &args.iperf3.iperf3 {
        return iperf3::run(&args, server);
    }
    let plan = args.plan()?;
    let hosts = HostNames { near: args.near_name(), far: args.far_name("the server") };
    let mut printer = Printer::new(args.report.output.open()?, origin(hosts), args.report.live_enabled());
    if args.tuning.compare {
        printer.compare();
    }
    // From here on, a failure is a part of the result.
    let tested = args.resolve_and_run(&plan, &mut printer);
    let printed = printer.finish(tested.as_ref().err());
    tested.and_then(|exit| printed.map(|()| exit))
}
