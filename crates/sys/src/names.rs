//! The name of an address (`getnameinfo(3)`): `/etc/hosts` and DNS, as the host is set up.

use std::ffi::{CStr, c_char};
use std::net::{IpAddr, SocketAddr};

/// The name of an address, if it has one. Takes as long as the resolver does.
pub fn name_of(address: IpAddr) -> Option<String> {
    let address = socket2::SockAddr::from(SocketAddr::new(address, 0));
    let mut name: [c_char; libc::NI_MAXHOST as usize] = [0; libc::NI_MAXHOST as usize];
    // SAFETY: the address is valid for its length, and the name's buffer is writable for the length given.
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
    // SAFETY: the call ended well, so that the buffer holds a string that ends with a zero.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    // A resolver may say anything: what would move a terminal is no name.
    name.to_str().ok().filter(|name| !name.chars().any(char::is_control)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_name_has_none() {
        // Documentation only (RFC 5737): nobody has a name there.
        assert_eq!(name_of([192, 0, 2, 1].into()), None);
    }
}
