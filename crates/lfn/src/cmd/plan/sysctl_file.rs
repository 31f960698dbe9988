//! Settings of another host from the output of `sysctl -a`.

use std::fs;
use std::io::{self, Read};

use lfn_base::plan::settings::{HostSettings, SETTING_NAMES};

use crate::exit::Failure;
use crate::typed::corrected;

/// Reads the output of `sysctl -a` from a file, or from standard input if the name is `-`.
pub(super) fn read(file: &str) -> Result<HostSettings, Failure> {
    let text = match file {
        "-" => {
            let mut text = String::new();
            io::stdin().lock().read_to_string(&mut text).map(|_| text)
        }
        file => fs::read_to_string(file),
    };
    let text = text.map_err(|error| {
        Failure::usage(format!("--sysctl: cannot read '{file}': {}", plain(&error)))
            .hint(format!("ssh HOST sysctl -a | {}", corrected("sysctl", "-")))
    })?;
    let settings = HostSettings::parse(&text);
    if SETTING_NAMES.iter().all(|name| settings.get(name).is_none()) {
        return Err(Failure::usage(format!(
            "--sysctl: '{file}' has no line such as net.ipv4.tcp_rmem = 4096 131072 6291456"
        ))
        .hint("use the output of `sysctl -a` of the host"));
    }
    Ok(settings)
}

/// Returns the text of an error without its number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
