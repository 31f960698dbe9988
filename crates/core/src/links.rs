//! Links by name: what `--link oc3c-atm` or `--link ethernet-10g` means in capacity, layer and MTU.
//!
//! A name gives the rate left for packets at the layer where it is counted, not the line rate on the label: an OC-3c
//! of 155.52 Mb/s leaves 149.76 in its envelope and 135.63 in its ATM cells. The names are read loosely (case, hyphens
//! and spaces do not matter) but never guessed.

use std::str::FromStr;

use crate::framing::Layer;
use crate::units::BitRate;

/// A link as its name describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The name, in its usual spelling.
    pub name: String,
    /// What it leaves for packets, counted at `layer`; none for a bare `ethernet`, whose rate must be given.
    pub capacity: Option<BitRate>,
    /// Where the capacity is counted.
    pub layer: Layer,
    /// The usual IP MTU, bytes.
    pub mtu: u32,
}

/// A name that is no link's. Cure: one of [`LINKS`], or a rate instead of a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is not a link lfn knows")]
pub struct UnknownLink {
    /// What was typed.
    pub name: String,
}

/// The names as documented, for help and errors.
pub const LINKS: &str = "oc3c, oc12c, oc48c or oc192c (stm1, stm4, stm16, stm64) with -atm, -pos or -hippi; \
ethernet-RATE such as ethernet-100m, ethernet-2.5g, ethernet-10g (10gbe); t1, t3";

/// What the envelope of an OC-1 leaves of its 51.84 Mb/s: 26 of 27 columns, after section, line and path overhead and
/// the fixed stuff of a concatenation (ANSI T1.105): 149.76 of 155.52 Mb/s for an OC-3c. b/s.
const ENVELOPE_PER_OC1: u64 = 49_920_000;

impl FromStr for Link {
    type Err = UnknownLink;

    /// `oc3c-atm`, `OC-12c/POS`, `stm16-pos`, `oc3c` (as ATM, which the reports had), `ethernet-10g`, `10gbe`, `t3`.
    fn from_str(text: &str) -> Result<Self, UnknownLink> {
        let plain: String = text.chars().filter(|c| !matches!(c, '-' | '_' | '/' | ':' | ' ')).collect();
        let plain = plain.to_ascii_lowercase();
        let link = sonet(&plain).or_else(|| ethernet(&plain)).or_else(|| leased_line(&plain));
        link.ok_or_else(|| UnknownLink { name: text.to_owned() })
    }
}

fn sonet(plain: &str) -> Option<Link> {
    // Longest first, so that oc192 is not read as oc1 and something.
    let levels = [("oc192", 192), ("oc48", 48), ("oc12", 12), ("oc3", 3)];
    let synonyms = [("stm64", 192), ("stm16", 48), ("stm4", 12), ("stm1", 3)];
    let (rest, level) = levels.iter().chain(&synonyms).find_map(|(stem, level)| {
        let rest = plain.strip_prefix(stem)?;
        Some((rest.strip_prefix('c').unwrap_or(rest), *level))
    })?;
    let envelope = level * ENVELOPE_PER_OC1;
    let (tail, layer, capacity, mtu) = match rest {
        // RFC 2225: 9,180 bytes.
        "" | "atm" | "aal5" | "atmaal5" | "ipoveratm" => ("atm", Layer::AtmAal5, envelope * 48 / 53, 9180),
        // RFC 2615 leaves the MTU open; 4,470 is what routers have.
        "pos" | "ppp" | "hdlc" | "ppphdlc" => ("pos", Layer::PppHdlc, envelope, 4470),
        // RFC 2067: 65,280 bytes.
        "hippi" | "hippisonet" => ("hippi", Layer::Hippi, envelope, 65_280),
        _ => return None,
    };
    Some(Link { name: format!("oc{level}c-{tail}"), capacity: Some(BitRate(capacity)), layer, mtu })
}

fn ethernet(plain: &str) -> Option<Link> {
    let of = |capacity: Option<BitRate>| {
        let name = capacity.map_or("ethernet".to_owned(), |rate| format!("ethernet at {rate}"));
        Link { name, capacity, layer: Layer::Ethernet, mtu: 1500 }
    };
    match plain {
        "ethernet" | "eth" => return Some(of(None)),
        "fastethernet" => return Some(of(Some(BitRate(100_000_000)))),
        "gige" | "gbe" | "gigabitethernet" => return Some(of(Some(BitRate(1_000_000_000)))),
        _ => {}
    }
    let rate = ["ethernet", "eth"]
        .iter()
        .find_map(|word| plain.strip_prefix(word).or_else(|| plain.strip_suffix(word)))
        .map(str::to_owned)
        // 10gbe and 40ge: the unit is in the word.
        .or_else(|| Some(format!("{}g", plain.strip_suffix("gbe").or_else(|| plain.strip_suffix("ge"))?)))?;
    let rate: BitRate = rate.strip_suffix("base").unwrap_or(&rate).parse().ok()?;
    // No Ethernet is slower than 1 Mb/s: a number without its unit was meant otherwise.
    (rate >= BitRate(1_000_000)).then(|| of(Some(rate)))
}

/// T1 and T3 with the payload rates and the PPP of RFC 6349, section 3.3.
fn leased_line(plain: &str) -> Option<Link> {
    let (name, rate) = match plain {
        "t1" | "ds1" => ("t1", 1_536_000),
        "t3" | "ds3" => ("t3", 44_210_000),
        _ => return None,
    };
    Some(Link { name: name.to_owned(), capacity: Some(BitRate(rate)), layer: Layer::Ppp, mtu: 1500 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_spellings_one_link() {
        for text in ["oc3c-atm", "OC-3c/ATM", "oc3-atm", "stm1-aal5", "oc3c", "STM-1 ATM", "oc3c:atm"] {
            let link: Link = text.parse().unwrap();
            assert_eq!((link.name.as_str(), link.capacity), ("oc3c-atm", Some(BitRate(135_631_698))), "{text}");
        }
        for text in ["ethernet-10g", "10gbe", "10GE", "eth10g", "10g-ethernet", "ethernet-10gbit"] {
            let link: Link = text.parse().unwrap();
            assert_eq!((link.layer, link.capacity), (Layer::Ethernet, Some(BitRate(10_000_000_000))), "{text}");
        }
        assert_eq!("ethernet".parse::<Link>().unwrap().capacity, None);
    }

    #[test]
    fn envelopes_of_the_concatenations() {
        let pos = |text: &str| text.parse::<Link>().unwrap().capacity.unwrap().0;
        assert_eq!(pos("oc3c-pos"), 149_760_000);
        assert_eq!(pos("oc12c-pos"), 599_040_000);
        assert_eq!(pos("oc48c-hippi"), 2_396_160_000);
        assert_eq!(pos("stm64-pos"), 9_584_640_000);
    }

    #[test]
    fn what_is_not_a_link() {
        for text in
            ["", "oc", "oc4c-atm", "oc3c-fddi", "token-ring", "ethernet-fast", "ethernet-10", "ethernet-0g", "gebe"]
        {
            assert!(text.parse::<Link>().is_err(), "{text}");
        }
    }
}
