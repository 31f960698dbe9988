//! What `ethtool(8)` asks a network driver, as far as an emulator or a test has to know it.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType, socket};

/// `ETHTOOL_GSET` of `linux/ethtool.h`.
const GET_SETTINGS: u32 = 1;
/// `ETHTOOL_GFLAGS`.
const GET_FLAGS: u32 = 0x25;
/// `ETHTOOL_GSSET_INFO`.
const GET_SET_SIZES: u32 = 0x37;
/// `ETHTOOL_GSTRINGS`.
const GET_STRINGS: u32 = 0x1b;
/// `ETHTOOL_SFEATURES`.
const SET_FEATURES: u32 = 0x3b;
/// `ETH_FLAG_LRO`.
const LARGE_RECEIVE_OFFLOAD: u32 = 1 << 15;
/// `ETH_SS_FEATURES`: the names of features, in the order of their bits.
const FEATURES: u32 = 4;
/// `ETH_GSTRING_LEN`.
const NAME: usize = 32;

/// Super-packets that a virtual-net header cannot tell from plain ones, or not at all: encapsulated ones, SCTP's, lists.
/// As `ethtool -k` names them.
const NOT_TOLD: [&str; 8] = [
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
    "tx-gre-segmentation",
    "tx-gre-csum-segmentation",
    "tx-ipxip4-segmentation",
    "tx-ipxip6-segmentation",
    "tx-sctp-segmentation",
    "tx-gso-list",
];

/// Whether the interface merges received packets in a way that cannot be undone (`large-receive-offload`); the other
/// way, GRO, can.
pub fn merges_received(interface: &str) -> io::Result<bool> {
    // `struct ethtool_value`.
    let mut value = [GET_FLAGS, 0];
    ask(interface, &mut value)?;
    Ok(value[1] & LARGE_RECEIVE_OFFLOAD != 0)
}

/// The rate of the interface's link, Mb/s; `None` where the driver does not know one.
pub fn megabits(interface: &str) -> io::Result<Option<u32>> {
    // `struct ethtool_cmd`: speed is two bytes at offset 12, its high half two at offset 28.
    let mut words = [0; 11];
    words[0] = GET_SETTINGS;
    ask(interface, &mut words)?;
    let half = |word: u32| u32::from(u16::from_ne_bytes([word.to_ne_bytes()[0], word.to_ne_bytes()[1]]));
    let speed = half(words[7]) << 16 | half(words[3]);
    // SPEED_UNKNOWN is all ones, in as many bits as the driver had.
    Ok(Some(speed).filter(|speed| ![0, 0xffff, u32::MAX].contains(speed)))
}

/// Has the kernel cut super-packets that a virtual-net header cannot describe before they reach the interface, which is
/// one of this namespace. A kernel that cannot make such super-packets has nothing to cut.
pub fn cut_what_is_not_told(interface: &str) -> io::Result<()> {
    let names = features(interface)?;
    // `struct ethtool_sfeatures`: a block for every 32 features, each of which are meant and which of those are wanted.
    let blocks = names.len().div_ceil(32);
    let mut request = vec![0; 2 + 2 * blocks];
    (request[0], request[1]) = (SET_FEATURES, narrow(blocks)?);
    let meant = names.iter().enumerate().filter(|(_, name)| NOT_TOLD.contains(&name.as_str()));
    meant.for_each(|(bit, _)| request[2 + bit / 32 * 2] |= 1 << (bit % 32));
    ask(interface, &mut request)
}

/// The names of features, in the order of their bits.
fn features(interface: &str) -> io::Result<Vec<String>> {
    // `struct ethtool_sset_info`: command, reserved, a mask of 64 bits of what is asked, and one answer.
    let (low, high) = if cfg!(target_endian = "little") { (1 << FEATURES, 0) } else { (0, 1 << FEATURES) };
    let mut sizes = [GET_SET_SIZES, 0, low, high, 0];
    ask(interface, &mut sizes)?;
    let count = sizes[4] as usize;
    // `struct ethtool_gstrings`: command, which set, how many, and the strings.
    let mut strings = vec![0; 3 + count * NAME / 4];
    (strings[0], strings[1], strings[2]) = (GET_STRINGS, FEATURES, narrow(count)?);
    ask(interface, &mut strings)?;
    let bytes: Vec<u8> = strings[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let name = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    Ok(bytes.chunks(NAME).map(name).collect())
}

/// One question to the driver. `words` begin with the command and are as long as what the kernel reads and writes.
fn ask(interface: &str, words: &mut [u32]) -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: ifreq is plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().take(room).zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request names an interface and points to live words, which are what this command reads and fills, by
    // the contract of this private function.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn narrow(value: usize) -> io::Result<u32> {
    u32::try_from(value).map_err(io::Error::other)
}
