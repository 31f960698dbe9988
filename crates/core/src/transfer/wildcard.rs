//! One pattern with wildcards as an automaton: rsync's `*`, `**`, `?`, `[…]` and `\`, on bytes.
//!
//! A matcher that tries and turns back takes exponential time for patterns such as `*a*a*a*a*b`; this one keeps the set
//! of places in the pattern where it may be, one bit each, and takes each byte of the path once (Baeza-Yates and Gonnet,
//! "A new approach to text searching", 1992).

/// A pattern as bits: bit `n` of a set stands for "before token `n`", the one behind the last token for "matched".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wildcard {
    tokens: usize,
    /// Words of a set.
    words: usize,
    /// For each byte, the tokens that take it and are done; 256 sets in a row.
    takes: Vec<u64>,
    /// Tokens that may take nothing, and stay: `*` and `**`.
    stars: Vec<u64>,
    /// Those of them that stay at a slash.
    double_stars: Vec<u64>,
}

/// Where in the path a match may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// At its start.
    Here,
    /// There, and behind every slash.
    AfterAnySlash,
}

#[derive(Clone, Debug)]
enum Token {
    Byte(u8),
    /// `?`: any byte but a slash.
    Any,
    /// `[…]`: one bit for each byte; never a slash.
    Class(Box<[u64; 4]>),
    /// `*`: any bytes without a slash.
    Star,
    /// `**` and longer: any bytes.
    DoubleStar,
    /// A class without its end or of an unknown name, a backslash at the end: matches nothing.
    Never,
}

impl Wildcard {
    /// Reads a pattern; every text is one.
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
        Wildcard::of(&tokens)
    }

    fn of(tokens: &[Token]) -> Self {
        let words = tokens.len() / 64 + 1;
        let set = vec![0; words];
        let (stars, double_stars, takes) = (set.clone(), set, vec![0; 256 * words]);
        let mut wildcard = Wildcard { tokens: tokens.len(), words, takes, stars, double_stars };
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
                    every_byte().filter(|byte| has(set, *byte)).for_each(|byte| insert(wildcard.taking(byte), at));
                }
            }
        }
        wildcard
    }

    fn taking(&mut self, byte: u8) -> &mut [u64] {
        &mut self.takes[usize::from(byte) * self.words..][..self.words]
    }

    /// Whether the whole text is matched.
    pub(super) fn matches(&self, text: impl Iterator<Item = u8>, start: Start) -> bool {
        let mut now = vec![0u64; self.words];
        self.begin(&mut now);
        for byte in text {
            self.step(&mut now, byte);
            if byte == b'/' && start == Start::AfterAnySlash {
                self.begin(&mut now);
            }
            if start == Start::Here && now.iter().all(|bits| *bits == 0) {
                return false;
            }
        }
        now[self.tokens / 64] >> (self.tokens % 64) & 1 == 1
    }

    fn begin(&self, now: &mut [u64]) {
        // Behind a star at the start too: it may take nothing.
        now[0] |= 1 | (self.stars[0] & 1) << 1;
    }

    /// A star may take nothing, and no two stars stand side by side: so its bit brings the next one with it, once.
    fn step(&self, now: &mut [u64], byte: u8) {
        let takes = &self.takes[usize::from(byte) * self.words..][..self.words];
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

/// Every byte that one token may take: a slash only itself.
fn every_byte() -> impl Iterator<Item = u8> {
    (0..=u8::MAX).filter(|byte| *byte != b'/')
}

fn insert(set: &mut [u64], at: usize) {
    set[at / 64] |= 1 << (at % 64);
}

fn has(set: &[u64; 4], byte: u8) -> bool {
    set[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
}

/// Reads a class from behind its `[`; gives the set and what is behind its `]`. The first member may be a `]`; a `-`
/// between two members makes a range; a backslash takes the next byte as it stands.
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
                        let member = named(name)?;
                        (0..=127).filter(member).for_each(&mut add);
                    }
                    // No `:]`: a member like any other.
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

/// The names of POSIX, for ASCII.
fn named(name: &[u8]) -> Option<fn(&u8) -> bool> {
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
        // With the vertical tab, which Rust's leaves out.
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}
