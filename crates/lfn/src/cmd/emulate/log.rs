//! The packet log of `--log`: opens the file before the run, and reports its state after the run.

use std::io;
use std::path::Path;

use lfn_emulate::{LogError, LogFiles, LogSummary, OutputFile};
use rustix::io::Errno;

use crate::exit::Failure;
use crate::print;

/// Opens the files, so that errors appear before the run.
pub fn open(path: &Path) -> Result<LogFiles, Failure> {
    LogFiles::open(path).map_err(|error| match error {
        LogError::Suffix(_) => {
            Failure::usage(format!("--log {error}")).hint("--log packets.jsonl or --log packets.pcapng")
        }
        LogError::Open { .. } => {
            let suffix = if path.extension().is_some_and(|suffix| suffix == "pcapng") { "pcapng" } else { "jsonl" };
            Failure::msg(format!("--log {error}"))
                .hint(format!("use a file that you may write: --log packets.{suffix}"))
        }
    })
}

/// Prints the number of records. An incomplete log is a failure. A log with gaps is a warning.
pub fn report_log(file: &LogFiles, account: &LogSummary) -> Result<(), Failure> {
    let (written, missed) = (account.written, account.missed);
    // Without drops, there is no file of dropped packets.
    let paths = file.outputs().iter().map(OutputFile::path).filter(|path| path.exists());
    let name = paths.map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    if let Some(error) = &account.error {
        let failure = Failure::msg(format!("--log {name}: {error}: {missed} records are missing"));
        return Err(if is_out_of_space(error) {
            failure.hint("check disk space, quota and `ulimit -f`: each packet needs 300 to 400 bytes")
        } else {
            failure
        });
    }
    print::message(match missed {
        0 => format!("log: {written} records in {name}\n"),
        _ => format!("log: {written} records in {name}; {missed} are missing, because writing was too slow\n"),
    });
    Ok(())
}

/// Compares the system's error texts, since the emulator reports only the text.
fn is_out_of_space(error: &str) -> bool {
    [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].into_iter().any(|errno| io::Error::from(errno).to_string() == error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_errors_are_recognized() {
        let words = |errno: Errno| io::Error::from(errno).to_string();
        assert!([Errno::NOSPC, Errno::DQUOT, Errno::FBIG].into_iter().all(|errno| is_out_of_space(&words(errno))));
        assert!([Errno::PIPE, Errno::IO].into_iter().all(|errno| !is_out_of_space(&words(errno))));
    }
}
