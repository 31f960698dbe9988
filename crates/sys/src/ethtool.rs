//! Requests of `ethtool(8)` to a network driver: link rate and duplex, rings, offloads, and the name of the driver.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType, socket};

/// Commands and flags in `linux/ethtool.h`: `ETHTOOL_GSET` and so on.
const GET_SETTINGS: u32 = 1;
const GET_DRIVER: u32 = 3;
const GET_RING_SIZES: u32 = 0x10;
const GET_FLAGS: u32 = 0x25;
const GET_SET_SIZES: u32 = 0x37;
const GET_STRINGS: u32 = 0x1b;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
const GET_LINK_SETTINGS: u32 = 0x4c;
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
    Ok(known_speed(half(words[7]) << 16 | half(words[3])))
}

/// Settings of a link (`struct ethtool_link_settings`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// Speed in Mb/s, or `None` if the driver does not know it.
    pub megabits: Option<u32>,
    pub duplex: Option<Duplex>,
    /// Highest speed in Mb/s of the modes that both the device and its link partner support. `None` if the link
    /// partner advertises no modes, as without autonegotiation.
    pub max_common_megabits: Option<u32>,
}

/// Duplex of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplex {
    Half,
    Full,
}

/// Returns the settings of a link.
pub fn link_settings(interface: &str) -> io::Result<LinkSettings> {
    // Without room for the masks of modes, the kernel answers with their number of words, negated.
    let mut words = vec![0; LINK_HEADER];
    words[0] = GET_LINK_SETTINGS;
    query(interface, &mut words)?;
    let masks = usize::from(mask_words(&words).unsigned_abs());
    let mut words = vec![0; LINK_HEADER + 3 * masks];
    words[0] = GET_LINK_SETTINGS;
    words[3] = u32::from_ne_bytes([0, 0, 0, u8::try_from(masks).map_err(io::Error::other)?]);
    query(interface, &mut words)?;
    Ok(parse_link_settings(&words, masks))
}

/// Length of `struct ethtool_link_settings`, without the masks of the modes that the device supports, that the device
/// advertises, and that its link partner advertises.
const LINK_HEADER: usize = 12;

/// Returns `link_mode_masks_nwords`: byte 15.
fn mask_words(words: &[u32]) -> i8 {
    words[3].to_ne_bytes()[3].cast_signed()
}

fn parse_link_settings(words: &[u32], masks: usize) -> LinkSettings {
    // The speed is the second word; the duplex is byte 8.
    let duplex = match words[2].to_ne_bytes()[0] {
        0 => Some(Duplex::Half),
        1 => Some(Duplex::Full),
        _ => None,
    };
    let mask = |number: usize| words[LINK_HEADER..].chunks(masks.max(1)).nth(number).unwrap_or_default();
    let common = mask(0).iter().zip(mask(2)).map(|(device, partner)| device & partner);
    let bits = common
        .enumerate()
        .flat_map(|(word, mask)| (0..32).filter(move |bit| mask >> bit & 1 != 0).map(move |bit| 32 * word + bit));
    LinkSettings { megabits: known_speed(words[1]), duplex, max_common_megabits: bits.filter_map(mode_megabits).max() }
}

/// Returns the speed of a link mode by its bit (`enum ethtool_link_mode_bit_indices`). Bits without a speed (media,
/// pause, error correction) and newer modes have none.
fn mode_megabits(bit: usize) -> Option<u32> {
    Some(match bit {
        0 | 1 | 92 | 99..=101 => 10,
        2 | 3 | 67 | 90 | 91 => 100,
        4 | 5 | 17 | 41 | 68 => 1000,
        15 | 47 => 2500,
        48 => 5000,
        12 | 18..=20 | 42..=46 => 10_000,
        21 | 22 => 20_000,
        31..=33 => 25_000,
        23..=26 => 40_000,
        34 | 35 | 40 | 52..=56 => 50_000,
        27..=30 => 56_000,
        36..=39 | 57..=61 | 75..=79 => 100_000,
        62..=66 | 80..=84 => 200_000,
        69..=73 | 85..=89 => 400_000,
        93..=98 => 800_000,
        _ => return None,
    })
}

/// Returns a speed, or `None` for SPEED_UNKNOWN, which is all ones. Old drivers use 16 bits.
fn known_speed(megabits: u32) -> Option<u32> {
    Some(megabits).filter(|megabits| ![0, 0xffff, u32::MAX].contains(megabits))
}

/// Returns the name of the driver.
pub fn driver(interface: &str) -> io::Result<String> {
    // Layout of `struct ethtool_drvinfo`: command, five names of 32 bytes, 12 reserved bytes, and five numbers.
    let mut words = [0; 49];
    words[0] = GET_DRIVER;
    query(interface, &mut words)?;
    Ok(text(&words[1..9]))
}

/// Returns the features (`ethtool -k`) that are on or can be turned on, by the kernel's names, and whether they are on.
pub fn changeable_features(interface: &str) -> io::Result<Vec<(String, bool)>> {
    let names = features(interface)?;
    // Layout of `struct ethtool_gfeatures`: command, number of blocks, and for every 32 features four masks: available,
    // requested, active, never changed.
    let blocks = names.len().div_ceil(32);
    let mut words = vec![0; 2 + 4 * blocks];
    (words[0], words[1]) = (GET_FEATURES, to_u32(blocks)?);
    query(interface, &mut words)?;
    let is_set = |feature: usize, mask: usize| words[2 + feature / 32 * 4 + mask] >> (feature % 32) & 1 != 0;
    let known = names.into_iter().enumerate().filter(|(_, name)| !name.is_empty());
    let states = known.map(|(feature, name)| (feature, name, is_set(feature, 2)));
    let useful = states.filter(|(feature, _, is_on)| *is_on || (is_set(*feature, 0) && !is_set(*feature, 3)));
    Ok(useful.map(|(_, name, is_on)| (name, is_on)).collect())
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
    Ok(strings[3..].chunks(NAME / 4).map(text).collect())
}

/// Returns a text that ends with a zero byte.
fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an answer with two words per mask: 1000 Mb/s, full duplex, and these modes.
    fn answer(device: &[usize], partner: &[usize]) -> Vec<u32> {
        let mut words = vec![0; LINK_HEADER + 6];
        (words[1], words[2]) = (1000, u32::from_ne_bytes([1, 0, 0, 0]));
        device.iter().for_each(|bit| words[LINK_HEADER + bit / 32] |= 1 << (bit % 32));
        partner.iter().for_each(|bit| words[LINK_HEADER + 4 + bit / 32] |= 1 << (bit % 32));
        words
    }

    #[test]
    fn highest_common_speed_needs_both_ends() {
        // 10, 100 and 1000BASE-T, autonegotiation, 2.5GBASE-T, 5GBASE-T.
        let settings = parse_link_settings(&answer(&[1, 3, 5, 6, 47], &[1, 3, 5, 6, 47, 48]), 2);
        let expected =
            LinkSettings { megabits: Some(1000), duplex: Some(Duplex::Full), max_common_megabits: Some(2500) };
        assert_eq!(settings, expected);
        let silent = parse_link_settings(&answer(&[1, 3, 5], &[]), 2);
        assert_eq!(silent.max_common_megabits, None, "the link partner advertises nothing");
        assert_eq!(parse_link_settings(&[0; LINK_HEADER], 0).max_common_megabits, None);
    }

    #[test]
    fn unknown_speed_and_duplex_are_absent() {
        let mut words = answer(&[], &[]);
        (words[1], words[2]) = (u32::MAX, u32::from_ne_bytes([0xff, 0, 0, 0]));
        assert_eq!(parse_link_settings(&words, 2), LinkSettings::default());
    }

    #[test]
    fn loopback_has_features_and_no_link() {
        let features = changeable_features("lo").unwrap();
        assert!(features.iter().any(|(name, is_on)| name == "tx-scatter-gather" && *is_on), "{features:?}");
        assert!(link_settings("lo").is_err() && driver("no-such-device").is_err());
    }
}
