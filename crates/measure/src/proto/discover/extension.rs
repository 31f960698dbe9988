//! Extension objects of ICMP messages (RFC 4884); MPLS label stacks (RFC 4950) are the only ones that are read.
//!
//! Anyone who can send ICMP can send these objects. So reading stops at the first error, and keeps the objects before
//! it.

use lfn_results::path_report::Label;

/// Maximum number of stack entries that are read: more than any network nests.
const MAX_LABELS: usize = 16;

/// Returns the label stack in an extension structure, or an empty list. The structure begins with its version and
/// checksum (RFC 4884 §7).
pub fn mpls(structure: &[u8]) -> Vec<Label> {
    /// Class and type of an incoming label stack (RFC 4950 §2).
    const INCOMING_STACK: [u8; 2] = [1, 1];
    let mut labels = Vec::new();
    let Some((head, mut rest)) = structure.split_first_chunk::<4>() else { return labels };
    // Only version 2 is known.
    if head[0] >> 4 != 2 {
        return labels;
    }
    while let Some((object, _)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_be_bytes([object[0], object[1]]));
        let Some(body) = rest.get(4..length) else { break };
        if object[2..] == INCOMING_STACK {
            let entries = body.chunks_exact(4).map(|entry| label([entry[0], entry[1], entry[2], entry[3]]));
            labels.extend(entries.take(MAX_LABELS - labels.len()));
        }
        rest = &rest[length..];
    }
    labels
}

fn label(entry: [u8; 4]) -> Label {
    let word = u32::from_be_bytes(entry);
    Label { label: word >> 12, traffic_class: (word >> 9) as u8 & 7, ttl: word as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn label_stack_is_parsed() {
        // Version 2; an object of 12 bytes, class 1, type 1; labels 16 (class 5, TTL 1) and 1048575 (TTL 255, bottom).
        let bytes = [0x20, 0, 0, 0, 0, 12, 1, 1, 0x00, 0x01, 0x0a, 1, 0xff, 0xff, 0xf1, 255];
        let expected =
            [Label { label: 16, traffic_class: 5, ttl: 1 }, Label { label: 1_048_575, traffic_class: 0, ttl: 255 }];
        assert_eq!(mpls(&bytes), expected);
        assert_eq!(mpls(&bytes[..14]), [], "a truncated object");
        let mut other = bytes;
        other[6] = 2;
        assert_eq!(mpls(&other), [], "another class");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = 0x20;
            }
            prop_assert!(mpls(&bytes).len() <= MAX_LABELS);
        }
    }
}
