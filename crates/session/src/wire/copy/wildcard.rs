//! One wildcard pattern as an automaton: rsync's `*`, `**`, `?`, `[…]` and `\`, on bytes.
//!
//! A backtracking matcher takes exponential time for patterns such as `*a*a*a*a*b`. This matcher keeps the set of
//! possible positions in the pattern, one bit each, and reads each byte of the path once (Baeza-Yates and Gonnet, "A
//! new approach to text searching", 1992).

/// A pattern as bits. Bit `n` of a set means "before token `n`"; the bit after the last token means "matched".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wildcard {
    tokens: usize,
    /// 64-bit words per set.
    words: usize,
    /// For each byte, the tokens that match it and end; 256 consecutive sets.
    byte_matches: Vec<u64>,
    /// Tokens that may match nothing, and stay active: `*` and `**`.
    stars: Vec<u64>,
    /// Stars that stay active at a slash.
    double_stars: Vec<u64>,
}

/// Positions in the path where a match may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchStart {
    /// At the start of the path.
    PathStart,
    /// At the start and after every slash.
    AfterAnySlash,
}

#[derive(Clone, Debug)]
enum Token {
    Byte(u8),
    /// `?`: any byte except a slash.
    Any,
    /// `[…]`: one bit for each byte, never a slash.
    Class(Box<[u64; 4]>),
    /// `*`: any bytes without a slash.
    Star,
    /// `**` and longer: any bytes.
    DoubleStar,
    /// A class without end or with an unknown name, or a final backslash: matches nothing.
    Never,
}

impl Wildcard {
    /// Parses a pattern. Every text is a valid pattern.
    pub(super) fn new(pattern: &[u8]) -> Self {
        let mut tokens = Vec::new();
        let mut rest = pattern;
        while let [byte, behind @ ..] = rest {
            let token;
            (token, rest) = match (byte, behind) {
                (b'?', _) => (Token::Any, behind),
                (b'*', [b'*', ..]) => {
                    let stars = behind.iter().take_while(|byte| **byte == b'*').count();
                    (Token::DoubleStar, &behind[stars..])
                }
                (b'*', _) => (Token::Star, behind),
                (b'[', _) => match class(behind) {
                    Some((set, behind)) => (Token::Class(Box::new(set)), behind),
                    None => (Token::Never, &[][..]),
                },
                (b'\\', [escaped, behind @ ..]) => (Token::Byte(*escaped), behind),
                (b'\\', []) => (Token::Never, &[][..]),
                (byte, _) => (Token::Byte(*byte), behind),
            };
            tokens.push(token);
        }
        Wildcard::compile(&tokens)
    }

    fn compile(tokens: &[Token]) -> Self {
        let words = tokens.len() / 64 + 1;
        let set = vec![0; words];
        let (stars, double_stars, takes) = (set.clone(), set, vec![0; 256 * words]);
        let mut wildcard = Wildcard { tokens: tokens.len(), words, byte_matches: takes, stars, double_stars };
        for (at, token) in tokens.iter().enumerate() {
            match token {
                Token::Never => {}
                Token::Star => insert(&mut wildcard.stars, at),
                Token::DoubleStar => {
                    insert(&mut wildcard.stars, at);
                    insert(&mut wildcard.double_stars, at);
                }
                Token::Byte(byte) => insert(wildcard.taking(*byte), at),
                Token::Any => every_byte().for_each(|byte| insert(wildcard.taking(byte), at)),
                Token::Class(set) => {
                    every_byte()
                        .filter(|byte| contains_byte(set, *byte))
                        .for_each(|byte| insert(wildcard.taking(byte), at));
                }
            }
        }
        wildcard
    }

    fn taking(&mut self, byte: u8) -> &mut [u64] {
        &mut self.byte_matches[usize::from(byte) * self.words..][..self.words]
    }

    /// Reports whether the complete text matches.
    pub(super) fn matches(&self, text: impl Iterator<Item = u8>, start: MatchStart) -> bool {
        let mut now = vec![0u64; self.words];
        self.begin(&mut now);
        for byte in text {
            self.step(&mut now, byte);
            if byte == b'/' && start == MatchStart::AfterAnySlash {
                self.begin(&mut now);
            }
            if start == MatchStart::PathStart && now.iter().all(|bits| *bits == 0) {
                return false;
            }
        }
        now[self.tokens / 64] >> (self.tokens % 64) & 1 == 1
    }

    fn begin(&self, now: &mut [u64]) {
        // Also activate the token after a leading star, which may match nothing.
        now[0] |= 1 | (self.stars[0] & 1) << 1;
    }

    /// A star may match nothing, and two stars are never adjacent. Its bit therefore also activates the next token.
    fn step(&self, now: &mut [u64], byte: u8) {
        let takes = &self.byte_matches[usize::from(byte) * self.words..][..self.words];
        let stays = if byte == b'/' { &self.double_stars } else { &self.stars };
        let (mut done_before, mut star_before) = (0, 0);
        for (at, bits) in now.iter_mut().enumerate() {
            let done = *bits & takes[at];
            let next = (done << 1 | done_before) | (*bits & stays[at]);
            let star = next & self.stars[at];
            *bits = next | (star << 1 | star_before);
            (done_before, star_before) = (done >> 63, star >> 63);
        }
    }
}

/// Returns every byte that a single token may match, which excludes the slash.
fn every_byte() -> impl Iterator<Item = u8> {
    (0..=u8::MAX).filter(|byte| *byte != b'/')
}

fn insert(set: &mut [u64], at: usize) {
    set[at / 64] |= 1 << (at % 64);
}

fn contains_byte(set: &[u64; 4], byte: u8) -> bool {
    set[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
}

/// Parses a class after its `[`. Returns the set and the rest after its `]`. The first member may be a `]`. A `-`
/// between two members makes a range. A backslash escapes the next byte.
fn class(pattern: &[u8]) -> Option<([u64; 4], &[u8])> {
    let (inverted, mut rest) = match pattern {
        [b'!' | b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut set = [0u64; 4];
    let mut add = |byte: u8| set[usize::from(byte >> 6)] |= 1 << (byte & 63);
    let mut before: Option<u8> = None;
    loop {
        (before, rest) = match rest {
            [] | [b'\\'] => return None,
            [b'-', to, behind @ ..] if before.is_some() && *to != b']' => {
                let (to, behind) = match (to, behind) {
                    (b'\\', [to, behind @ ..]) => (*to, behind),
                    (b'\\', []) => return None,
                    (to, behind) => (*to, behind),
                };
                (before?..=to).for_each(&mut add);
                (None, behind)
            }
            [b'\\', byte, behind @ ..] => {
                add(*byte);
                (Some(*byte), behind)
            }
            [b'[', b':', name @ ..] => {
                let end = name.iter().position(|byte| *byte == b']')?;
                match name[..end].strip_suffix(b":") {
                    Some(name) => {
                        let member = posix_class(name)?;
                        (0..=127).filter(member).for_each(&mut add);
                    }
                    // Without `:]`, the bracket is an ordinary member.
                    None => add(b'['),
                }
                match name[..end].ends_with(b":") {
                    true => (None, &name[end + 1..]),
                    false => (Some(b'['), &rest[1..]),
                }
            }
            [byte, behind @ ..] => {
                add(*byte);
                (Some(*byte), behind)
            }
        };
        if let [b']', behind @ ..] = rest {
            let set = if inverted { set.map(|bits| !bits) } else { set };
            return Some((set, behind));
        }
    }
}

/// Returns the POSIX class with this name, for ASCII.
fn posix_class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        // Includes the vertical tab, unlike Rust's function.
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}
