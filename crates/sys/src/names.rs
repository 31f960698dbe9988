//! Reverse lookup of addresses (`getnameinfo(3)`): `/etc/hosts` and DNS, as the host is configured.

use std::ffi::{CStr, c_char};
use std::net::{IpAddr, SocketAddr};

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

    #[test]
    fn address_without_name_returns_none() {
        // Documentation address (RFC 5737): it never has a name.
        assert_eq!(reverse_lookup([192, 0, 2, 1].into()), None);
    }
}
