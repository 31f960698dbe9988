//! The size of a packet on the wire: the headers around a TCP payload, and the layer at which a capacity is counted.
//!
//! A capacity has no meaning without its layer: 155.52 Mb/s of SONET line, 149.76 Mb/s of envelope and 135.63 Mb/s of
//! ATM cell payload are all one OC-3c. A [`Framing`] names the layer and the headers between the layer and the payload.
//! [`Framing::payload`] divided by [`Framing::wire_bytes_full`] is the share of the capacity that TCP can use. A
//! framing has no rate and no delay; [`crate::path::PathProfile`] adds them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The headers around each TCP payload, and the layer at which the path's capacity is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Framing {
    /// Layer at which the capacity is counted.
    pub layer: Layer,
    /// IP version of the inner packets, and of a tunnel around them.
    pub ip: IpVersion,
    /// True if segments do not carry the TCP timestamps option (RFC 7323, 12 bytes with its padding).
    pub without_timestamps: bool,
    /// VLAN tags on Ethernet layers: 0, 1 (802.1Q) or 2 (802.1ad, QinQ); 4 bytes each.
    pub vlan_tags: u8,
    /// Tunnel around the packets.
    pub tunnel: Option<Tunnel>,
}

/// The layer at which a capacity is counted. It determines the bytes that each packet adds to its IP length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// IP packet + 14 bytes of Ethernet header, as tc's tbf and htb and lfn's emulated link count.
    #[default]
    EthernetHeader,
    /// The Ethernet wire: preamble 8, header 14, FCS 4 and gap 12 around the packet; frames of at least 64 bytes.
    Ethernet,
    /// IP packets without any framing.
    Ip,
    /// ATM cell payload with AAL5: LLC/SNAP 8 and trailer 8, padded to whole cells of 48 (RFC 2684).
    AtmAal5,
    /// SONET envelope with PPP in HDLC-like framing: flag 1, address 1, control 1, protocol 2, FCS 4 (RFC 2615). Octet
    /// stuffing, 0.8 % of random data, is not counted, because it depends on the data.
    PppHdlc,
    /// A T1 or T3 as RFC 6349 counts it: 8 bytes of PPP around each packet.
    Ppp,
    /// HIPPI over a SONET envelope: HIPPI-FP 8, HIPPI-LE 24 and LLC/SNAP 8, padded to 8 bytes (RFC 2067).
    Hippi,
}

/// Error: a name that is not the name of a layer. The message lists the names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a layer: use one of ethernet-header, ethernet, ip, atm-aal5, ppp-hdlc, ppp, hippi")]
pub struct UnknownLayer(pub String);

/// IP version of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum IpVersion {
    /// 20 bytes of header.
    #[default]
    #[serde(rename = "4")]
    V4,
    /// 40 bytes of header.
    #[serde(rename = "6")]
    V6,
}

/// A tunnel that wraps each packet in another of the same IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Tunnel {
    /// Outer IP, UDP 8, WireGuard data header 16, Poly1305 tag 16: 60 bytes over IPv4, 80 over IPv6.
    Wireguard,
    /// ESP in tunnel mode with AES-GCM and a 16-byte ICV (RFC 4303, 4106): outer IP, SPI and sequence 8, IV 8,
    /// pad length and next header 2, padding to 4, ICV 16.
    IpsecEsp,
}

/// Ethernet header without VLAN tags, bytes. An emulated link counts it, the MTU does not.
pub const ETHERNET_HEADER: u32 = 14;
/// TCP header without options, bytes (RFC 9293).
const TCP_HEADER: u32 = 20;
/// TCP timestamps option with the two no-ops that align it, bytes (RFC 7323, appendix A).
const TCP_TIMESTAMPS: u32 = 12;

impl Framing {
    /// Returns the payload bytes of a full TCP segment on a link with this IP MTU; 0 if the headers fill the MTU.
    ///
    /// Linux calls this value `snd_mss`: 1448 at MTU 1500 with IPv4 and timestamps. The MSS option on the wire is 1460.
    pub fn payload(self, mtu: u32) -> u32 {
        let options = if self.without_timestamps { 0 } else { TCP_TIMESTAMPS };
        self.inner_mtu(mtu).saturating_sub(self.ip.header() + TCP_HEADER + options)
    }

    /// Returns the bytes of one full TCP segment at the layer where the capacity is counted, on a link with this IP
    /// MTU.
    pub fn wire_bytes_full(self, mtu: u32) -> u64 {
        self.wire_bytes(self.outer_length(self.inner_mtu(mtu)))
    }

    /// Returns the bytes of one IP packet at the layer where the capacity is counted. `ip_length` is the length on the
    /// link, with the tunnel.
    pub fn wire_bytes(self, ip_length: u32) -> u64 {
        let ip = u64::from(ip_length);
        let tags = u64::from(self.vlan_tags) * 4;
        match self.layer {
            Layer::EthernetHeader => ip + u64::from(ETHERNET_HEADER) + tags,
            Layer::Ethernet => (ip + 18 + tags).max(64) + 20,
            Layer::Ip => ip,
            Layer::AtmAal5 => (ip + 16).div_ceil(48) * 48,
            Layer::PppHdlc => ip + 9,
            Layer::Ppp => ip + 8,
            Layer::Hippi => (ip + 40).next_multiple_of(8),
        }
    }

    /// Returns the largest packet that fits into the tunnel on a link with this IP MTU; without a tunnel, the MTU
    /// itself.
    ///
    /// WireGuard pads a packet to 16 bytes but never past its MTU, so a full packet carries no padding.
    pub fn inner_mtu(self, mtu: u32) -> u32 {
        let outer = self.ip.header();
        match self.tunnel {
            None => mtu,
            Some(Tunnel::Wireguard) => mtu.saturating_sub(outer + 40),
            Some(Tunnel::IpsecEsp) => (mtu.saturating_sub(outer + 32) / 4 * 4).saturating_sub(2),
        }
    }

    /// Returns the length of a full inner packet on the link.
    fn outer_length(self, inner: u32) -> u32 {
        let outer = self.ip.header();
        match self.tunnel {
            None => inner,
            Some(Tunnel::Wireguard) => inner.saturating_add(outer + 40),
            Some(Tunnel::IpsecEsp) => inner.saturating_add(2).next_multiple_of(4).saturating_add(outer + 32),
        }
    }
}

impl IpVersion {
    /// Returns the header bytes without options or extension headers.
    pub fn header(self) -> u32 {
        match self {
            IpVersion::V4 => 20,
            IpVersion::V6 => 40,
        }
    }
}

impl Layer {
    /// All layers, the default first.
    pub const ALL: [Layer; 7] =
        [Layer::EthernetHeader, Layer::Ethernet, Layer::Ip, Layer::AtmAal5, Layer::PppHdlc, Layer::Ppp, Layer::Hippi];

    /// Returns the name for flags and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Layer::EthernetHeader => "ethernet-header",
            Layer::Ethernet => "ethernet",
            Layer::Ip => "ip",
            Layer::AtmAal5 => "atm-aal5",
            Layer::PppHdlc => "ppp-hdlc",
            Layer::Ppp => "ppp",
            Layer::Hippi => "hippi",
        }
    }

    /// Describes the layer for a reader.
    pub fn describe(self) -> &'static str {
        match self {
            Layer::EthernetHeader => "IP packets and their Ethernet header",
            Layer::Ethernet => "the Ethernet wire",
            Layer::Ip => "IP packets",
            Layer::AtmAal5 => "ATM cell payload, AAL5",
            Layer::PppHdlc => "the SONET envelope, PPP/HDLC",
            Layer::Ppp => "the line, PPP",
            Layer::Hippi => "the SONET envelope, HIPPI framing",
        }
    }

    /// Returns whether a packet at this layer can have a VLAN tag.
    pub fn is_ethernet(self) -> bool {
        matches!(self, Layer::EthernetHeader | Layer::Ethernet)
    }
}

impl FromStr for Layer {
    type Err = UnknownLayer;

    fn from_str(text: &str) -> Result<Self, UnknownLayer> {
        let name = text.trim().to_ascii_lowercase();
        Layer::ALL.into_iter().find(|layer| layer.name() == name).ok_or_else(|| UnknownLayer(text.to_owned()))
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_names_equal_json_names() {
        for layer in Layer::ALL {
            assert_eq!(layer.to_string().parse(), Ok(layer));
            assert_eq!(serde_json::to_value(layer).unwrap(), layer.name());
        }
        assert!("atm".parse::<Layer>().unwrap_err().to_string().contains("'atm' is not a layer"));
    }

    #[test]
    fn a_full_segment_on_each_layer() {
        let on = |layer| Framing { layer, ..Framing::default() };
        assert_eq!(on(Layer::EthernetHeader).payload(1500), 1448);
        assert_eq!(on(Layer::EthernetHeader).wire_bytes_full(1500), 1514);
        assert_eq!(on(Layer::Ethernet).wire_bytes_full(1500), 1538);
        assert_eq!(on(Layer::AtmAal5).wire_bytes_full(9180), 192 * 48);
        assert_eq!(on(Layer::PppHdlc).wire_bytes_full(4470), 4479);
        assert_eq!(on(Layer::Hippi).wire_bytes_full(65_280), 65_320);
    }

    #[test]
    fn small_packets_fill_the_minimum_frame_and_cell() {
        assert_eq!(Framing { layer: Layer::Ethernet, ..Framing::default() }.wire_bytes(40), 84);
        // RFC 2684: a 40-byte acknowledgement with LLC/SNAP and trailer is 56 bytes: two cells.
        assert_eq!(Framing { layer: Layer::AtmAal5, ..Framing::default() }.wire_bytes(40), 96);
    }

    #[test]
    fn tunnels_leave_the_room_of_their_rfcs() {
        let through = |tunnel, ip| Framing { tunnel: Some(tunnel), ip, ..Framing::default() };
        // wg-quick's 1420 is 1500 - 80.
        assert_eq!(through(Tunnel::Wireguard, IpVersion::V6).inner_mtu(1500), 1420);
        assert_eq!(through(Tunnel::Wireguard, IpVersion::V4).inner_mtu(1500), 1440);
        // ESP: 20 + 8 + 8 + 16 = 52; of the remaining 1448, the trailer takes 2.
        let esp = through(Tunnel::IpsecEsp, IpVersion::V4);
        assert_eq!(esp.inner_mtu(1500), 1446);
        assert_eq!(esp.wire_bytes_full(1500), 1514);
        assert_eq!(esp.payload(60), 0);
    }
}
