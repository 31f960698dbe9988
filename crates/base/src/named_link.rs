//! Links by name: capacity, layer and MTU of `--link oc3c-atm` or `--link ethernet-10g`.
//!
//! A name stands for the rate that is left for packets at the layer where it is counted, not for the line rate on the
//! label. An OC-3c of 155.52 Mb/s leaves 149.76 Mb/s in its envelope and 135.63 Mb/s in its ATM cells. The parser
//! ignores case, hyphens and spaces, but it never guesses.

use std::str::FromStr;

use crate::framing::Layer;
use crate::units::BitRate;

/// The capacity, layer and MTU that belong to a link name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLink {
    /// Name in its usual spelling.
    pub name: String,
    /// Capacity left for packets, counted at `layer`; `None` for a bare `ethernet`, which needs an explicit rate.
    pub capacity: Option<BitRate>,
    pub layer: Layer,
    /// Usual IP MTU, bytes.
    pub mtu: u32,
}

/// Error: an unknown link name. Remedy: one of [`LINKS`], or a rate instead of a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is not a known link")]
pub struct UnknownLink {
    pub name: String,
}

pub const LINKS: &str = "ethernet-RATE, for example ethernet-10g, ethernet-100g, ethernet-400g (400gbe); docsis-3.0, \
docsis-3.1; gpon, xgs-pon; 5g; starlink; oc3c, oc12c, oc48c or oc192c (stm1, stm4, stm16, stm64) with -atm, -pos or \
-hippi; t1, t3";

/// Downstream rate of DOCSIS 3.0 in b/s: 8 channels of 6 MHz with 256-QAM, 38.8107 Mb/s of information each (ITU-T J.83
/// annex B).
const DOCSIS_3_0_RATE: u64 = 8 * 38_810_700;
/// Downstream rate of one OFDM channel of DOCSIS 3.1 in b/s: 192 MHz with 4096-QAM (CableLabs, CM-SP-PHYv3.1).
const DOCSIS_3_1_RATE: u64 = 1_890_000_000;
/// Downstream rate of a GPON in b/s, which all its subscribers share: 2.48832 Gb/s (ITU-T G.984.2), less the error
/// correction RS(255,239) (ITU-T G.984.3).
const GPON_RATE: u64 = 2_488_320_000 * 239 / 255;
/// Rate of an XGS-PON in b/s, which all its subscribers share: 9.95328 Gb/s, less the error correction RS(248,216)
/// (ITU-T G.9807.1).
const XGS_PON_RATE: u64 = 9_953_280_000 * 216 / 248;
/// Rate to expect of 5G in b/s: the user-experienced rate that IMT-2020 requires downstream in cities (ITU-R M.2410-0,
/// section 4.3).
const FIVE_G_RATE: u64 = 100_000_000;
/// Rate to expect of Starlink in b/s: the median download of one subscriber (Michel et al., A first look at Starlink
/// performance, IMC 2022).
const STARLINK_RATE: u64 = 178_000_000;

/// Rate in b/s that the envelope of an OC-1 leaves of its 51.84 Mb/s: 26 of 27 columns, after section, line and path
/// overhead and the fixed stuff of a concatenation (ANSI T1.105). An OC-3c has 149.76 of 155.52 Mb/s.
const OC1_ENVELOPE_RATE: u64 = 49_920_000;

impl FromStr for NamedLink {
    type Err = UnknownLink;

    /// Reads `oc3c-atm`, `OC-12c/POS`, `stm16-pos`, `oc3c` (as ATM, the link of the reports), `ethernet-10g`, `10gbe`,
    /// `t3`, `gpon`, `docsis-3.1`, `5g`, `starlink`.
    fn from_str(text: &str) -> Result<Self, UnknownLink> {
        let normalized: String = text.chars().filter(|c| !matches!(c, '-' | '_' | '/' | ':' | ' ')).collect();
        let normalized = normalized.to_ascii_lowercase();
        let link = sonet(&normalized).or_else(|| ethernet(&normalized)).or_else(|| leased_line(&normalized));
        let link = link.or_else(|| access(&normalized));
        link.ok_or_else(|| UnknownLink { name: text.to_owned() })
    }
}

fn sonet(normalized: &str) -> Option<NamedLink> {
    // Longest name first, so that oc192 is not read as oc1 with a rest.
    let levels = [("oc192", 192), ("oc48", 48), ("oc12", 12), ("oc3", 3)];
    let synonyms = [("stm64", 192), ("stm16", 48), ("stm4", 12), ("stm1", 3)];
    let (rest, level) = levels.iter().chain(&synonyms).find_map(|(stem, level)| {
        let rest = normalized.strip_prefix(stem)?;
        Some((rest.strip_prefix('c').unwrap_or(rest), *level))
    })?;
    let envelope = level * OC1_ENVELOPE_RATE;
    let (tail, layer, capacity, mtu) = match rest {
        // RFC 2225: 9,180 bytes.
        "" | "atm" | "aal5" | "atmaal5" | "ipoveratm" => ("atm", Layer::AtmAal5, envelope * 48 / 53, 9180),
        // RFC 2615 does not fix the MTU; routers use 4,470.
        "pos" | "ppp" | "hdlc" | "ppphdlc" => ("pos", Layer::PppHdlc, envelope, 4470),
        // RFC 2067: 65,280 bytes.
        "hippi" | "hippisonet" => ("hippi", Layer::Hippi, envelope, 65_280),
        _ => return None,
    };
    Some(NamedLink { name: format!("oc{level}c-{tail}"), capacity: Some(BitRate(capacity)), layer, mtu })
}

fn ethernet(normalized: &str) -> Option<NamedLink> {
    let of = |capacity: Option<BitRate>| {
        let name = capacity.map_or("ethernet".to_owned(), |rate| format!("ethernet at {rate}"));
        NamedLink { name, capacity, layer: Layer::Ethernet, mtu: 1500 }
    };
    match normalized {
        "ethernet" | "eth" => return Some(of(None)),
        "fastethernet" => return Some(of(Some(BitRate(100_000_000)))),
        "gige" | "gbe" | "gigabitethernet" => return Some(of(Some(BitRate(1_000_000_000)))),
        _ => {}
    }
    let rate = ["ethernet", "eth"]
        .iter()
        .find_map(|word| normalized.strip_prefix(word).or_else(|| normalized.strip_suffix(word)))
        .map(str::to_owned)
        // In 10gbe and 40ge the unit is part of the word.
        .or_else(|| Some(format!("{}g", normalized.strip_suffix("gbe").or_else(|| normalized.strip_suffix("ge"))?)))?;
    let rate: BitRate = rate.strip_suffix("base").unwrap_or(&rate).parse().ok()?;
    // No Ethernet is slower than 1 Mb/s, so a smaller number lacks its unit.
    (rate >= BitRate(1_000_000)).then(|| of(Some(rate)))
}

/// Returns the links of subscribers, in the direction to the subscriber. Cable and fibre networks carry Ethernet frames;
/// the rates of radio links are measured with IP packets.
fn access(normalized: &str) -> Option<NamedLink> {
    let (name, rate, layer) = match normalized {
        "docsis3.0" | "docsis30" => ("docsis-3.0", DOCSIS_3_0_RATE, Layer::EthernetHeader),
        "docsis" | "docsis3.1" | "docsis31" => ("docsis-3.1", DOCSIS_3_1_RATE, Layer::EthernetHeader),
        "gpon" => ("gpon", GPON_RATE, Layer::EthernetHeader),
        "xgspon" => ("xgs-pon", XGS_PON_RATE, Layer::EthernetHeader),
        "5g" | "5gnr" => ("5g", FIVE_G_RATE, Layer::Ip),
        "starlink" => ("starlink", STARLINK_RATE, Layer::Ip),
        _ => return None,
    };
    Some(NamedLink { name: name.to_owned(), capacity: Some(BitRate(rate)), layer, mtu: 1500 })
}

/// Returns T1 and T3 with the payload rates and the PPP framing of RFC 6349, section 3.3.
fn leased_line(normalized: &str) -> Option<NamedLink> {
    let (name, rate) = match normalized {
        "t1" | "ds1" => ("t1", 1_536_000),
        "t3" | "ds3" => ("t3", 44_210_000),
        _ => return None,
    };
    Some(NamedLink { name: name.to_owned(), capacity: Some(BitRate(rate)), layer: Layer::Ppp, mtu: 1500 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_spellings_name_one_link() {
        for text in ["oc3c-atm", "OC-3c/ATM", "oc3-atm", "stm1-aal5", "oc3c", "STM-1 ATM", "oc3c:atm"] {
            let link: NamedLink = text.parse().unwrap();
            assert_eq!((link.name.as_str(), link.capacity), ("oc3c-atm", Some(BitRate(135_631_698))), "{text}");
        }
        for text in ["ethernet-10g", "10gbe", "10GE", "eth10g", "10g-ethernet", "ethernet-10gbit"] {
            let link: NamedLink = text.parse().unwrap();
            assert_eq!((link.layer, link.capacity), (Layer::Ethernet, Some(BitRate(10_000_000_000))), "{text}");
        }
        assert_eq!("ethernet".parse::<NamedLink>().unwrap().capacity, None);
    }

    #[test]
    fn sonet_envelope_rates() {
        let pos = |text: &str| text.parse::<NamedLink>().unwrap().capacity.unwrap().0;
        assert_eq!(pos("oc3c-pos"), 149_760_000);
        assert_eq!(pos("oc12c-pos"), 599_040_000);
        assert_eq!(pos("oc48c-hippi"), 2_396_160_000);
        assert_eq!(pos("stm64-pos"), 9_584_640_000);
    }

    #[test]
    fn links_of_today_have_rates() {
        let rows = [
            ("ethernet-100g", 100_000_000_000),
            ("400gbe", 400_000_000_000),
            ("DOCSIS 3.1", 1_890_000_000),
            ("docsis-3.0", 310_485_600),
            ("GPON", 2_332_190_117),
            ("xgs-pon", 8_668_985_806),
            ("5G", 100_000_000),
            ("Starlink", 178_000_000),
        ];
        for (text, rate) in rows {
            assert_eq!(text.parse::<NamedLink>().unwrap().capacity, Some(BitRate(rate)), "{text}");
        }
    }

    #[test]
    fn unknown_links_are_rejected() {
        for text in
            ["", "oc", "oc4c-atm", "oc3c-fddi", "token-ring", "ethernet-fast", "ethernet-10", "ethernet-0g", "gebe"]
        {
            assert!(text.parse::<NamedLink>().is_err(), "{text}");
        }
    }
}
