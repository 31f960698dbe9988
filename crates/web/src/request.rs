//! The parts of a request that decide about its answer: the token and the format.

use axum::http::header::{ACCEPT, AUTHORIZATION};
use axum::http::{HeaderMap, Uri};
use blake3::Hash;
use data_encoding::BASE64;

/// Format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Html,
    Text,
}

/// The secret of the page. It keeps a hash: comparing two hashes takes the same time wherever they differ.
#[derive(Debug)]
pub(crate) struct PageToken(Hash);

impl PageToken {
    pub(crate) fn new(token: &str) -> Self {
        PageToken(blake3::hash(token.as_bytes()))
    }

    /// Returns whether a request has the token: as the password of HTTP Basic with any user name, or as a bearer token.
    pub(crate) fn permits(&self, headers: &HeaderMap) -> bool {
        let Some(value) = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) else { return false };
        let Some((scheme, credentials)) = value.trim().split_once(' ') else { return false };
        let credentials = credentials.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.is(credentials.as_bytes());
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return false;
        }
        let Ok(decoded) = BASE64.decode(credentials.as_bytes()) else { return false };
        decoded.iter().position(|byte| *byte == b':').is_some_and(|colon| self.is(&decoded[colon + 1..]))
    }

    fn is(&self, given: &[u8]) -> bool {
        blake3::hash(given) == self.0
    }
}

/// Chooses the format: `?format=` first, then HTML for clients that accept it by name. Browsers do, curl does not.
pub(crate) fn format(uri: &Uri, headers: &HeaderMap) -> Format {
    match parameter(uri, "format").as_deref() {
        Some("text") => return Format::Text,
        Some("html") => return Format::Html,
        _ => {}
    }
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let is_browser = accepts.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_html = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("text/html"));
        is_html && !parts.any(|part| matches!(part.replace(' ', "").as_str(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    });
    if is_browser { Format::Html } else { Format::Text }
}

/// Returns the first value of a parameter of the query, decoded.
pub(crate) fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let pairs = uri.query()?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| decode(&value.replace('+', " "))).next()
}

/// Decodes the percent signs of a part of an address. Bytes that are not UTF-8 become U+FFFD.
pub(crate) fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push(hex(*high).unwrap_or(0) << 4 | hex(*low).unwrap_or(0));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &str = "0123456789abcdef:x";

    fn authorized(value: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        PageToken::new(TOKEN).permits(&headers)
    }

    #[test]
    fn token_is_a_password_or_a_bearer_token() {
        let basic = |text: &str| format!("Basic {}", BASE64.encode(text.as_bytes()));
        assert!(authorized(&basic(&format!(":{TOKEN}"))));
        assert!(authorized(&basic(&format!("anybody:{TOKEN}"))));
        assert!(authorized(&format!("bearer {TOKEN}")));
        for wrong in [
            basic(TOKEN.split(':').next().unwrap()),
            basic(&format!(":{TOKEN}x")),
            basic(&format!(":{}", &TOKEN[1..])),
            format!("Basic {TOKEN}"),
            format!("Digest {TOKEN}"),
            "Basic".to_owned(),
            String::new(),
        ] {
            assert!(!authorized(&wrong), "{wrong}");
        }
        assert!(!PageToken::new(TOKEN).permits(&HeaderMap::new()));
    }

    #[test]
    fn browsers_get_html_and_curl_gets_text() {
        let chosen = |address: &str, accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_str(accept).unwrap());
            format(&address.parse().unwrap(), &headers)
        };
        assert_eq!(chosen("/", "text/html,application/xhtml+xml,*/*;q=0.8"), Format::Html);
        for accept in ["*/*", "text/plain", "text/html;q=0", "application/json"] {
            assert_eq!(chosen("/", accept), Format::Text, "{accept}");
        }
        assert_eq!(chosen("/?days=7&format=html", "*/*"), Format::Html);
        assert_eq!(chosen("/?format=text", "text/html"), Format::Text);
        assert_eq!(format(&"/".parse().unwrap(), &HeaderMap::new()), Format::Text);
    }

    #[test]
    fn parameters_are_decoded() {
        let uri: Uri = "/?q=a%20b+%3Cc%3E&q=second&bad=%zz%e".parse().unwrap();
        assert_eq!(parameter(&uri, "q").as_deref(), Some("a b <c>"));
        assert_eq!(parameter(&uri, "bad").as_deref(), Some("%zz%e"));
        assert_eq!(parameter(&uri, "absent"), None);
    }

    proptest! {
        #[test]
        fn any_text_decodes_without_panic(text in "[%0-9a-fA-F+é\u{0}]{0,40}") {
            decode(&text);
        }
    }
}
