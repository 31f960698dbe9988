//! Header of TCP and its options. The first 20 bytes suffice: a capture can end within the options.

use super::ip::IpHeader;
use super::rest::Rest;
use crate::{MAX_SACK_RANGES, MptcpOption, SackRange, TcpEndpoint, TcpFlags, TcpOptions, TcpSegment, Timestamps};

const FIXED_HEADER: usize = 20;
const FLAGS: u16 = 0x01ff;

/// IANA numbers of options.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const MPTCP: u8 = 30;
const ACC_ECN_0: u8 = 172;
const ACC_ECN_1: u8 = 174;

/// Reads the TCP segment of an IP packet; `None` if its header is cut off or broken.
#[inline]
pub(super) fn read(ip: &IpHeader, rest: Rest<'_>) -> Option<TcpSegment> {
    let header = rest.head::<FIXED_HEADER>()?;
    let length = usize::from(header[12] >> 4) * 4;
    if length < FIXED_HEADER || rest.wire < length {
        return None;
    }
    let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let u32_at = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Some(TcpSegment {
        source: TcpEndpoint { address: ip.source, port: u16_at(0) },
        destination: TcpEndpoint { address: ip.destination, port: u16_at(2) },
        ip_id: ip.id,
        ttl: ip.ttl,
        ecn: ip.ecn,
        sequence: u32_at(4),
        acknowledgement: u32_at(8),
        flags: TcpFlags(u16_at(12) & FLAGS),
        window: u16_at(14),
        payload: u32::try_from(rest.wire - length).unwrap_or(u32::MAX),
        options: options(&rest.bytes[FIXED_HEADER..rest.bytes.len().min(length)], length - FIXED_HEADER),
    })
}

/// Reads the captured part of the options, which have `length` bytes on the wire.
#[inline]
fn options(bytes: &[u8], length: usize) -> TcpOptions {
    // Nearly all segments have only timestamps, in this form (RFC 7323 appendix A).
    if let [NO_OPERATION, NO_OPERATION, TIMESTAMPS, 10, value @ ..] = bytes
        && length == 12
        && let Some(timestamps) = timestamps(value)
    {
        return TcpOptions { timestamps: Some(timestamps), ..TcpOptions::default() };
    }
    any_options(bytes, length)
}

fn any_options(mut bytes: &[u8], length: usize) -> TcpOptions {
    let mut options = TcpOptions::default();
    let mut remaining = length;
    while remaining > 0 {
        let size = match bytes {
            [END, ..] => return options,
            [NO_OPERATION, ..] => 1,
            [_, size, ..] => usize::from(*size),
            _ => {
                // One byte that needs a length, at the end of the options, is broken and not truncated.
                options.is_truncated = bytes.len() < remaining;
                return options;
            }
        };
        if size == 0 || size > remaining || (size == 1 && bytes[0] != NO_OPERATION) {
            return options;
        }
        let Some((option, rest)) = bytes.split_at_checked(size) else {
            options.is_truncated = true;
            return options;
        };
        if size > 1 {
            read_option(option[0], &option[2..], &mut options);
        }
        bytes = rest;
        remaining -= size;
    }
    options
}

/// Reads one option. An option of a wrong length is skipped.
fn read_option(kind: u8, value: &[u8], options: &mut TcpOptions) {
    match (kind, value) {
        (MSS, [high, low]) => options.mss = Some(u16::from_be_bytes([*high, *low])),
        (WINDOW_SCALE, [scale]) => options.window_scale = Some(*scale),
        (SACK_PERMITTED, []) => options.sack_permitted = true,
        (SACK, _) => read_sack(value, options),
        (TIMESTAMPS, _) if value.len() == 8 => options.timestamps = timestamps(value),
        (MPTCP, [first, ..]) => read_mptcp(*first, value, options),
        (ACC_ECN_0 | ACC_ECN_1, _) => options.acc_ecn = true,
        _ => {}
    }
}

#[inline]
fn timestamps(value: &[u8]) -> Option<Timestamps> {
    let (value, echo) = value.split_first_chunk::<4>()?;
    Some(Timestamps { value: u32::from_be_bytes(*value), echo: u32::from_be_bytes(*echo.first_chunk()?) })
}

fn read_sack(mut value: &[u8], options: &mut TcpOptions) {
    while let Some((range, rest)) = value.split_first_chunk::<8>() {
        let count = usize::from(options.sack_ranges);
        if count == MAX_SACK_RANGES {
            return;
        }
        let [a, b, c, d, e, f, g, h] = *range;
        options.sack[count] =
            SackRange { start: u32::from_be_bytes([a, b, c, d]), end: u32::from_be_bytes([e, f, g, h]) };
        options.sack_ranges += 1;
        value = rest;
    }
}

/// Reads MP_CAPABLE and MP_JOIN (RFC 8684 §3.1, §3.2). The value begins with the subtype.
fn read_mptcp(first: u8, value: &[u8], options: &mut TcpOptions) {
    const CAPABLE: u8 = 0;
    const JOIN: u8 = 1;
    /// Bytes of the value of MP_JOIN in a SYN.
    const JOIN_SYN: usize = 10;
    let after_flags = value.get(2..).unwrap_or_default();
    let key = |at: usize| after_flags.get(at..)?.first_chunk().copied().map(u64::from_be_bytes);
    let option = match first >> 4 {
        CAPABLE => MptcpOption::Capable { version: first & 0x0f, key: key(0), receiver_key: key(8) },
        JOIN if value.len() == JOIN_SYN => match after_flags.first_chunk() {
            Some(token) => MptcpOption::Join { token: u32::from_be_bytes(*token) },
            None => MptcpOption::Other,
        },
        _ => MptcpOption::Other,
    };
    if options.mptcp.is_none() || option != MptcpOption::Other {
        options.mptcp = Some(option);
    }
}
