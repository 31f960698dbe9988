//! Errors as lines of text: an error and its causes, without the numbers of system errors.

use std::error::Error;

/// Joins the error and its causes. Skips a cause that the text before already contains.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |&error| error.source())
        .map(|cause| without_error_number(&cause.to_string()))
        .fold(String::new(), |joined, cause| match joined.as_str() {
            "" => cause,
            before if before.ends_with(&cause) => joined,
            _ => format!("{joined}: {cause}"),
        })
}

/// Removes ` (os error 13)`, which Rust adds to the text of a system error.
pub fn without_error_number(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |joined, part| match part.split_once(')') {
        Some((number, rest)) if number.chars().all(|c| c.is_ascii_digit()) => joined + rest,
        _ => format!("{joined} (os error {part}"),
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use lfn_session::SessionError;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no answer")]
    struct NoAnswer(#[source] io::Error);

    #[test]
    fn error_chain_skips_repeated_causes() {
        let refused = || io::Error::from_raw_os_error(111);
        let error = SessionError::Unreachable { address: "far:1".into(), source: refused() };
        assert_eq!(error_chain(&error), "cannot reach far:1: Connection refused");
        assert_eq!(error_chain(&NoAnswer(refused())), "no answer: Connection refused");
    }
}
