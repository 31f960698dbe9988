//! Hosts of a result, and reasons why a result gives no entry.

use lfn_results::evidence::HostNames;

/// Names of the hosts of a result, as the user gives them.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResultHosts<'a> {
    /// Host that ran the command; `None`: the name in the result.
    pub near: Option<&'a str>,
    /// Server of the result.
    pub far: Option<&'a str>,
}

/// Reasons why a result gives no entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    #[error("the result does not name the host that ran the command")]
    NoNearName,
    #[error("the result does not name the server")]
    NoFarName,
    #[error("the result has no time of its start")]
    NoTime,
    #[error("the result has no finished test")]
    NoRun,
    #[error("a comparison of settings (lfn test --compare) is not a log entry")]
    Comparison,
}

/// Returns the names of both hosts: those of the user, or those of the result.
pub(super) fn names(of_result: &HostNames, of_user: ResultHosts<'_>) -> Result<HostNames, ResultError> {
    let name = |given: Option<&str>, stored: &str, missing| match given {
        Some(name) => Ok(name.to_owned()),
        None => host_name(stored).map(str::to_owned).ok_or(missing),
    };
    let near = name(of_user.near, &of_result.near, ResultError::NoNearName)?;
    let far = name(of_user.far, &of_result.far, ResultError::NoFarName)?;
    Ok(HostNames { near, far })
}

/// Returns the host of a name as typed, without user and port; `None` if the text is not the name of a host.
fn host_name(typed: &str) -> Option<&str> {
    let host = typed.rsplit_once('@').map_or(typed, |(_, host)| host);
    let host = host.split_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(host, _)| host);
    let is_name = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    is_name.then_some(host)
}
