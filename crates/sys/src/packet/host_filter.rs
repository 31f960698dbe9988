//! Filter program in classic BPF (`SO_ATTACH_FILTER`) for the packets of some hosts, cut off after the first bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum addresses of each IP version in a program: a jump reaches 255 instructions.
const MAX_ADDRESSES: usize = 8;

/// Offset of loads that count from the network header (`SKF_NET_OFF`).
const NETWORK: u32 = -0x0010_0000_i32 as u32;
/// Offset of loads of packet metadata (`SKF_AD_OFF`); 0 is the protocol.
const PROTOCOL: u32 = -0x1000_i32 as u32;

/// Returns a program that keeps `snap_length` bytes of each packet.
///
/// With `hosts`, the program drops TCP and UDP packets in plain IP whose source and destination are both no host of the
/// list. Other packets pass: the addresses of a tunnel are inside. Too many hosts pass all packets.
pub(super) fn program(hosts: &[IpAddr], snap_length: u32) -> Vec<libc::sock_filter> {
    let v4: Vec<Ipv4Addr> =
        hosts.iter().filter_map(|host| if let IpAddr::V4(v4) = host { Some(*v4) } else { None }).collect();
    let v6: Vec<Ipv6Addr> =
        hosts.iter().filter_map(|host| if let IpAddr::V6(v6) = host { Some(*v6) } else { None }).collect();
    let mut program = Vec::new();
    if !hosts.is_empty() && v4.len().max(v6.len()) <= MAX_ADDRESSES {
        let v4: Vec<Vec<u32>> = v4.iter().map(|address| vec![address.to_bits()]).collect();
        let words = |address: &Ipv6Addr| (0..4).map(|word| (address.to_bits() >> (96 - 32 * word)) as u32).collect();
        let v6: Vec<Vec<u32>> = v6.iter().map(words).collect();
        // Protocol of the payload, source and destination in the headers of IPv4 and IPv6.
        append(&mut program, libc::ETH_P_IP as u32, 9, [12, 16], &v4, snap_length);
        append(&mut program, libc::ETH_P_IPV6 as u32, 6, [8, 24], &v6, snap_length);
    }
    program.push(accept(snap_length));
    program
}

/// Appends the instructions for one IP version. Packets of the other version skip them.
fn append(
    program: &mut Vec<libc::sock_filter>,
    ether_type: u32,
    protocol_at: u32,
    addresses_at: [u32; 2],
    hosts: &[Vec<u32>],
    snap_length: u32,
) {
    let mut block = vec![
        load(libc::BPF_B, NETWORK + protocol_at),
        jump(libc::IPPROTO_TCP as u32, 2, 0),
        jump(libc::IPPROTO_UDP as u32, 1, 0),
        accept(snap_length),
    ];
    for at in addresses_at {
        for words in hosts {
            for (word, value) in words.iter().enumerate() {
                // A difference skips the loads and comparisons of the other words, and the end.
                let rest = 2 * (words.len() - 1 - word) + 1;
                block.push(load(libc::BPF_W, NETWORK + at + 4 * word as u32));
                block.push(jump(*value, 0, rest as u8));
            }
            block.push(accept(snap_length));
        }
    }
    block.push(accept(0));
    program.push(load(libc::BPF_W, PROTOCOL));
    program.push(jump(ether_type, 0, block.len() as u8));
    program.append(&mut block);
}

fn load(size: u32, at: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_LD | size | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: at }
}

/// Skips `equal` instructions if the loaded value is `value`, else `different` ones.
fn jump(value: u32, equal: u8, different: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: equal, jf: different, k: value }
}

/// Keeps this many bytes of the packet; zero drops it.
fn accept(length: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: length }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_stay_within_the_program() {
        let hosts: Vec<IpAddr> =
            (0..MAX_ADDRESSES as u8).flat_map(|n| [IpAddr::from([10, 0, 0, n]), IpAddr::from([n; 16])]).collect();
        for hosts in [&hosts[..0], &hosts[..1], &hosts[1..2], &hosts[..]] {
            let program = program(hosts, 192);
            for (at, code) in program.iter().enumerate() {
                let is_jump = u32::from(code.code) & 7 == libc::BPF_JMP;
                let last = at + 1 + usize::from(code.jt.max(code.jf));
                assert!(!is_jump || last < program.len(), "{at}");
            }
            assert_eq!((program[program.len() - 1].k, program.len() > 1), (192, !hosts.is_empty()));
        }
        assert_eq!(program(&[IpAddr::from([1; 4]); MAX_ADDRESSES + 1], 96).len(), 1, "too many hosts pass everything");
    }
}
