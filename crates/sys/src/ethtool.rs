//! Requests of `ethtool(8)` to a network driver, as far as the emulator and the tests need them.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType, socket};

/// Commands and flags in `linux/ethtool.h`: `ETHTOOL_GSET` and so on.
const GET_SETTINGS: u32 = 1;
const GET_RING_SIZES: u32 = 0x10;
const GET_FLAGS: u32 = 0x25;
const GET_SET_SIZES: u32 = 0x37;
const GET_STRINGS: u32 = 0x1b;
const SET_FEATURES: u32 = 0x3b;
const LARGE_RECEIVE_OFFLOAD: u32 = 1 << 15;
/// `ETH_SS_FEATURES`: the names of the features, in the order of their bits.
const FEATURES: u32 = 4;
const NAME: usize = 32;

/// Offloads with super-packets that a virtio-net header cannot distinguish from other packets, or cannot describe:
/// encapsulated packets, SCTP, lists. The names are those of `ethtool -k`.
const UNSUPPORTED_OFFLOADS: [&str; 8] = [
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
    "tx-ipxip4-segmentation",
    "tx-ipxip6-segmentation",
    "tx-sctp-segmentation",
    "tx-gso-list",
];

/// Returns true if the interface merges received packets irreversibly (`large-receive-offload`). Packets merged by GRO
/// can be split again.
pub fn has_large_receive_offload(interface: &str) -> io::Result<bool> {
    // Layout of `struct ethtool_value`.
    let mut value = [GET_FLAGS, 0];
    query(interface, &mut value)?;
    Ok(value[1] & LARGE_RECEIVE_OFFLOAD != 0)
}

/// Returns the link speed of the interface in Mb/s, or `None` if the driver does not know it.
pub fn link_speed_megabits(interface: &str) -> io::Result<Option<u32>> {
    // Layout of `struct ethtool_cmd`: the speed is two bytes at offset 12, its high half is two bytes at offset 28.
    let mut words = [0; 11];
    words[0] = GET_SETTINGS;
    query(interface, &mut words)?;
    let half = |word: u32| u32::from(u16::from_ne_bytes([word.to_ne_bytes()[0], word.to_ne_bytes()[1]]));
    let speed = half(words[7]) << 16 | half(words[3]);
    // SPEED_UNKNOWN is all ones. Old drivers use 16 bits.
    Ok(Some(speed).filter(|speed| ![0, 0xffff, u32::MAX].contains(speed)))
}

/// Sizes of the descriptor rings of an interface, in packets (`struct ethtool_ringparam`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingParameters {
    pub receive: u32,
    pub max_receive: u32,
    pub send: u32,
    pub max_send: u32,
}

/// Returns the sizes of the descriptor rings. Drivers without rings answer with an error.
pub fn ring_parameters(interface: &str) -> io::Result<RingParameters> {
    let mut words = [0; 9];
    words[0] = GET_RING_SIZES;
    query(interface, &mut words)?;
    Ok(RingParameters { max_receive: words[1], max_send: words[4], receive: words[5], send: words[8] })
}

/// Makes the kernel split super-packets that a virtio-net header cannot describe, before they reach the interface. The
/// interface must be in this namespace. A kernel without these offloads needs no change.
pub fn disable_unsupported_offloads(interface: &str) -> io::Result<()> {
    let names = features(interface)?;
    // Layout of `struct ethtool_sfeatures`: for every 32 features, a mask of the selected ones and a mask of the
    // requested values.
    let blocks = names.len().div_ceil(32);
    let mut request = vec![0; 2 + 2 * blocks];
    (request[0], request[1]) = (SET_FEATURES, to_u32(blocks)?);
    let selected = names.iter().enumerate().filter(|(_, name)| UNSUPPORTED_OFFLOADS.contains(&name.as_str()));
    selected.for_each(|(bit, _)| request[2 + bit / 32 * 2] |= 1 << (bit % 32));
    query(interface, &mut request)
}

/// Returns the names of the features, in the order of their bits.
fn features(interface: &str) -> io::Result<Vec<String>> {
    // Layout of `struct ethtool_sset_info`: command, reserved, a 64-bit mask of requested sets, and one result.
    let (low, high) = if cfg!(target_endian = "little") { (1 << FEATURES, 0) } else { (0, 1 << FEATURES) };
    let mut sizes = [GET_SET_SIZES, 0, low, high, 0];
    query(interface, &mut sizes)?;
    let count = sizes[4] as usize;
    // Layout of `struct ethtool_gstrings`: command, set, number of strings, and the strings.
    let mut strings = vec![0; 3 + count * NAME / 4];
    (strings[0], strings[1], strings[2]) = (GET_STRINGS, FEATURES, to_u32(count)?);
    query(interface, &mut strings)?;
    let bytes: Vec<u8> = strings[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let name = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    Ok(bytes.chunks(NAME).map(name).collect())
}

/// Sends one request to the driver. `words` starts with the command, and is as long as the data that the kernel reads
/// and writes.
fn query(interface: &str, words: &mut [u32]) -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: ifreq is plain data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().take(room).zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request names an interface and points to live words. By the contract of this private function, this
    // command reads and fills exactly these words.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn to_u32(value: usize) -> io::Result<u32> {
    u32::try_from(value).map_err(io::Error::other)
}
