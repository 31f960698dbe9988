//! Lookup of names (`getaddrinfo(3)`) and addresses (`getnameinfo(3)`): `/etc/hosts` and DNS, as the host is configured.
//!
//! A static binary uses only these two sources. The other sources of `/etc/nsswitch.conf` are libraries of the C library
//! of the host, which a static binary cannot load.

use std::ffi::{CStr, c_char};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// This binary contains its C library.
pub(crate) const IS_STATIC: bool = cfg!(target_feature = "crt-static");

/// Returns the addresses of a host name or address, at least one. Blocks until the resolver answers. The error states
/// which sources were used.
pub fn lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    // RFC 6761, section 6.3: this name needs no lookup. Without a DNS server, musl would wait for one.
    let localhost = || {
        let addresses = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        addresses.map(|address| SocketAddr::new(address, port)).to_vec()
    };
    let is_localhost = host.eq_ignore_ascii_case("localhost");
    if is_localhost && IS_STATIC {
        return Ok(localhost());
    }
    let error = match (host, port).to_socket_addrs() {
        Ok(found) => {
            let found: Vec<_> = found.collect();
            if !found.is_empty() {
                return Ok(found);
            }
            io::Error::new(io::ErrorKind::NotFound, "the name has no address")
        }
        Err(_) if is_localhost => return Ok(localhost()),
        Err(error) => error,
    };
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let configuration = ResolverConfiguration {
        resolv_conf: text("/etc/resolv.conf"),
        nsswitch_conf: text("/etc/nsswitch.conf"),
        is_static: IS_STATIC,
    };
    Err(io::Error::new(io::ErrorKind::NotFound, configuration.explain(host, &error.to_string())))
}

/// Configuration of the resolver. A missing file is an empty text.
struct ResolverConfiguration {
    resolv_conf: String,
    nsswitch_conf: String,
    is_static: bool,
}

impl ResolverConfiguration {
    /// Explains why a lookup failed. `error` is the text of the resolver.
    fn explain(&self, host: &str, error: &str) -> String {
        let error = error.strip_prefix("failed to lookup address information: ").unwrap_or(error);
        let lines = self.resolv_conf.lines().map(str::split_whitespace);
        let servers: Vec<&str> =
            lines.filter_map(|mut words| words.next().filter(|word| *word == "nameserver").and(words.next())).collect();
        // The texts of glibc and of musl.
        let mut reason = match error {
            _ if servers.is_empty() => {
                "the name is not in /etc/hosts, and /etc/resolv.conf names no DNS server".to_owned()
            }
            "Temporary failure in name resolution" | "Try again" => {
                format!("no answer from the DNS server {}", servers.join(" or "))
            }
            "Name or service not known" | "Name does not resolve" => {
                "the name is neither in /etc/hosts nor in DNS".to_owned()
            }
            other => other.to_owned(),
        };
        let unused = self.unused_sources(host);
        if !unused.is_empty() {
            reason += &format!("; this static binary cannot use '{}' of /etc/nsswitch.conf", unused.join("' and '"));
        }
        reason
    }

    /// Returns the sources of names that this binary does not use and that may know this name.
    fn unused_sources(&self, host: &str) -> Vec<&str> {
        if !self.is_static {
            return Vec::new();
        }
        let may_know = |source: &&str| match *source {
            "files" | "dns" => false,
            // Each knows only names of a kind.
            "myhostname" => !host.contains('.'),
            source if source.starts_with("mdns") => host.ends_with(".local"),
            _ => true,
        };
        nsswitch_sources(&self.nsswitch_conf, "hosts").filter(may_know).collect()
    }
}

/// Returns the sources of a database in `nsswitch.conf(5)`, without actions in brackets.
pub(crate) fn nsswitch_sources<'a>(text: &'a str, database: &str) -> impl Iterator<Item = &'a str> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let sources = lines.filter_map(|line| line.split_once(':')).filter(move |(name, _)| name.trim() == database);
    let words = sources.flat_map(|(_, sources)| sources.split_whitespace());
    // An action can contain spaces: [NOTFOUND=return SUCCESS=continue].
    words
        .scan(false, |in_action, word| {
            let is_action = *in_action || word.starts_with('[');
            *in_action = is_action && !word.ends_with(']');
            Some((!is_action).then_some(word))
        })
        .flatten()
}

/// Returns the name of an address, if it has one. Blocks until the resolver answers.
pub fn reverse_lookup(address: IpAddr) -> Option<String> {
    let address = socket2::SockAddr::from(SocketAddr::new(address, 0));
    let mut name: [c_char; libc::NI_MAXHOST as usize] = [0; libc::NI_MAXHOST as usize];
    // SAFETY: the address is valid for its length, and the name buffer is writable for the given length.
    let result = unsafe {
        libc::getnameinfo(
            address.as_ptr().cast(),
            address.len(),
            name.as_mut_ptr(),
            name.len() as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    if result != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so the buffer holds a string that ends with a zero byte.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    // A resolver may return any text. Names with control characters are rejected, because they could manipulate the
    // terminal.
    name.to_str().ok().filter(|name| !name.chars().any(char::is_control)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(host: &str, error: &str, resolv_conf: &str, nsswitch_conf: &str, is_static: bool) -> String {
        let files = (resolv_conf.to_owned(), nsswitch_conf.to_owned());
        ResolverConfiguration { resolv_conf: files.0, nsswitch_conf: files.1, is_static }.explain(host, error)
    }

    #[test]
    fn addresses_and_localhost_need_no_resolver() {
        assert_eq!(lookup("192.0.2.1", 7).unwrap(), ["192.0.2.1:7".parse().unwrap()]);
        assert!(lookup("localhost", 7).unwrap().iter().all(|address| address.ip().is_loopback()));
    }

    #[test]
    fn failed_lookup_names_the_cause() {
        let unknown = "failed to lookup address information: Name does not resolve";
        let silent = "failed to lookup address information: Temporary failure in name resolution";
        let dns = "# comment\nsearch example.org\nnameserver 192.0.2.53\n";
        assert_eq!(
            explain("far", silent, "", "", true),
            "the name is not in /etc/hosts, and /etc/resolv.conf names no DNS server"
        );
        assert_eq!(explain("far", silent, dns, "", false), "no answer from the DNS server 192.0.2.53");
        assert_eq!(explain("far", unknown, dns, "", false), "the name is neither in /etc/hosts nor in DNS");
        assert_eq!(explain("far", "Memory allocation failure", dns, "", false), "Memory allocation failure");
    }

    #[test]
    fn failed_lookup_of_a_static_binary_names_unused_sources() {
        let nsswitch = "hosts: files mdns4_minimal [NOTFOUND=return] resolve dns myhostname # mymachines\n";
        let reason = |host, is_static| explain(host, "x", "nameserver 192.0.2.53", nsswitch, is_static);
        assert_eq!(reason("far.example.org", false), "x");
        let of = "of /etc/nsswitch.conf";
        assert_eq!(reason("far.example.org", true), format!("x; this static binary cannot use 'resolve' {of}"));
        let all = format!("x; this static binary cannot use 'mdns4_minimal' and 'resolve' {of}");
        assert_eq!(reason("far.local", true), all);
        assert!(reason("far", true).contains("'resolve' and 'myhostname'"));
    }

    #[test]
    fn actions_of_nsswitch_are_not_sources() {
        let text = "passwd: files\nhosts: files [NOTFOUND=return SUCCESS=merge] dns\n";
        assert_eq!(nsswitch_sources(text, "hosts").collect::<Vec<_>>(), ["files", "dns"]);
        assert_eq!(nsswitch_sources(text, "group").count(), 0);
    }

    #[test]
    fn address_without_name_returns_none() {
        // Documentation address (RFC 5737): it never has a name.
        assert_eq!(reverse_lookup([192, 0, 2, 1].into()), None);
    }
}
