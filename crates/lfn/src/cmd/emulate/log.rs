//! The file of `--log`: opened before the run, and an account of it given after.

use std::io;
use std::path::Path;

use lfn_net::emulator::{LogAccount, LogError, LogFile};
use rustix::io::Errno;

use crate::exit::Failure;
use crate::print;

/// Makes sure that it can be written.
pub fn open(path: &Path) -> Result<LogFile, Failure> {
    LogFile::open(path).map_err(|error| match error {
        LogError::Suffix(_) => {
            Failure::usage(format!("--log {error}")).hint("--log packets.jsonl or --log packets.pcapng")
        }
        LogError::Open { .. } => {
            Failure::msg(format!("--log {error}")).hint("--log packets.jsonl, where you may write")
        }
    })
}

/// Says how much of the run is in it. A log that ends early is a failure; one with gaps is not, but is told.
pub fn conclude(file: &LogFile, account: &LogAccount) -> Result<(), Failure> {
    let (name, written, missed) = (file.output().path().display(), account.written, account.missed);
    if let Some(error) = &account.error {
        let failure = Failure::msg(format!("--log {name}: {error}: {missed} records are not in it"));
        return Err(if is_for_want_of_room(error) {
            failure.hint("a file system, a quota and a ulimit -f with room for 300 to 400 bytes a packet")
        } else {
            failure
        });
    }
    print::talk(match missed {
        0 => format!("log: {written} records in {name}\n"),
        _ => format!("log: {written} records in {name}; {missed} are missing, it could not be written as fast\n"),
    });
    Ok(())
}

/// By the system's words, which is all that the emulator reports.
fn is_for_want_of_room(error: &str) -> bool {
    [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].into_iter().any(|errno| io::Error::from(errno).to_string() == error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_asked_for_where_it_was_wanting() {
        let words = |errno: Errno| io::Error::from(errno).to_string();
        assert!([Errno::NOSPC, Errno::DQUOT, Errno::FBIG].into_iter().all(|errno| is_for_want_of_room(&words(errno))));
        assert!([Errno::PIPE, Errno::IO].into_iter().all(|errno| !is_for_want_of_room(&words(errno))));
    }
}
