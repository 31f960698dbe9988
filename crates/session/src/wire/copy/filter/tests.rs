//! Expected results are the output of rsync 3.2.7 (`rsync -n -r --out-format=%n`) for these rules and this tree.

use proptest::prelude::*;

use super::*;

const TREE: &str = r"[x] a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c";

fn rules(text: &str) -> FilterRules {
    let mut rules = FilterRules::default();
    for rule in text.split(' ') {
        let decision = if rule.starts_with('+') { Decision::Include } else { Decision::Exclude };
        rules.push(decision, &rule.as_bytes()[1..]).unwrap();
    }
    rules
}

/// Walks the tree as a sender does: the contents of an excluded directory are never checked.
fn walk(rules: &FilterRules) -> String {
    let (mut copied, mut left_out) = (Vec::new(), Vec::new());
    for path in TREE.split(' ').filter(|path| !path.is_empty()) {
        if left_out.iter().any(|directory| path.starts_with(directory)) {
            continue;
        }
        match rules.decide(path.trim_end_matches('/').as_bytes(), path.ends_with('/')) {
            Decision::Include => copied.push(path),
            Decision::Exclude if path.ends_with('/') => left_out.push(path),
            Decision::Exclude => {}
        }
    }
    copied.join(" ")
}

#[test]
fn rules_match_rsync() {
    let cases = [
        ("-foo", r"[x] a\b b*c d/ d/e/ d/x.c e/ e/d/ q.c"),
        ("-/foo", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo q.c"),
        ("-foo/", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-d/", r"[x] a\b b*c e/ foo q.c"),
        ("-/d", r"[x] a\b b*c e/ e/d/ e/d/foo foo q.c"),
        ("-d/foo", r"[x] a\b b*c d/ d/e/ d/e/foo d/x.c e/ e/d/ foo q.c"),
        ("-/d/foo", r"[x] a\b b*c d/ d/e/ d/e/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-e/foo", r"[x] a\b b*c d/ d/e/ d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-*.c", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo e/ e/d/ e/d/foo foo"),
        ("-/*.c", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo"),
        ("-d/*.c", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo e/ e/d/ e/d/foo foo q.c"),
        ("-*/foo", r"[x] a\b b*c d/ d/e/ d/x.c e/ e/d/ foo q.c"),
        ("-*/*/foo", r"[x] a\b b*c d/ d/e/ d/foo d/x.c e/ e/d/ foo q.c"),
        ("-**/foo", r"[x] a\b b*c d/ d/e/ d/x.c e/ e/d/ q.c"),
        ("-**foo", r"[x] a\b b*c d/ d/e/ d/x.c e/ e/d/ q.c"),
        ("-d/**", r"[x] a\b b*c d/ e/ e/d/ foo q.c"),
        ("-d/***", r"[x] a\b b*c e/ foo q.c"),
        ("-d***", r"[x] a\b b*c e/ foo q.c"),
        ("-/d/**", r"[x] a\b b*c d/ e/ e/d/ e/d/foo foo q.c"),
        ("-**/d/***", r"[x] a\b b*c e/ foo q.c"),
        ("-d/**/foo", r"[x] a\b b*c d/ d/e/ d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-d**foo", r"[x] a\b b*c d/ d/e/ d/x.c e/ e/d/ foo q.c"),
        ("-*", ""),
        ("-**", ""),
        ("-/*", ""),
        ("-*/", r"[x] a\b b*c foo q.c"),
        ("-/*/", r"[x] a\b b*c foo q.c"),
        ("-?", r"[x] a\b b*c foo q.c"),
        ("-?oo", r"[x] a\b b*c d/ d/e/ d/x.c e/ e/d/ q.c"),
        ("-[x]", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        (r"-\[x]", r"a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-[[]x[]]", r"a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-[d-e]", r"[x] a\b b*c foo q.c"),
        ("-[!d]", r"[x] a\b b*c d/ d/foo d/x.c foo q.c"),
        ("-[^a-f]*", r"a\b b*c d/ d/e/ d/e/foo d/foo e/ e/d/ e/d/foo foo"),
        ("-[[:alpha:]]", r"[x] a\b b*c foo q.c"),
        ("-[[:punct:]]*", r"a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-[[:nope:]]", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-[d", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        (r"-a\b", "[x] b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        (r"-a\\b", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        (r"-a\\b*", "[x] b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-b*c", r"[x] a\b d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        (r"-b\*c", r"[x] a\b d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-b[*]c", r"[x] a\b d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-/", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-d//", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-[]x]", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        (r"-[\d]", r"[x] a\b b*c e/ foo q.c"),
        ("-[--e]", r"[x] a\b b*c foo q.c"),
        ("+foo -*", "foo"),
        ("+*/ +foo -*", "d/ d/e/ d/e/foo d/foo e/ e/d/ e/d/foo foo"),
        ("+/d/ +/d/e/ +/d/e/*** -*", "d/ d/e/ d/e/foo"),
        ("+d/*** -*", "d/ d/e/ d/e/foo d/foo d/x.c"),
        ("+*.c -*.? -foo/", r"[x] a\b b*c d/ d/e/ d/e/foo d/foo d/x.c e/ e/d/ e/d/foo foo q.c"),
        ("-d/e +d/** -*", ""),
        ("+d/foo -foo", r"[x] a\b b*c d/ d/e/ d/foo d/x.c e/ e/d/ e/d/foo q.c"),
    ];
    for (text, copied) in cases {
        assert_eq!(walk(&rules(text)), copied, "{text}");
    }
    assert_eq!(walk(&FilterRules::default()), TREE);
}

#[test]
fn patterns_match_non_utf8_bytes() {
    let mut rules = FilterRules::default();
    rules.push(Decision::Exclude, b"?\xff[\x80-\xfe]").unwrap();
    assert_eq!(rules.decide(b"d/a\xff\x90", false), Decision::Exclude);
    assert_eq!(rules.decide(b"d/a\xff\xff", false), Decision::Include);
    assert_eq!(rules.decide(b"", true), Decision::Include);
}

#[test]
fn invalid_patterns_are_rejected() {
    let push = |pattern: &[u8]| FilterRules::default().push(Decision::Exclude, pattern).unwrap_err().to_string();
    assert_eq!(push(b""), "empty pattern");
    assert!(push(b"a\0").contains("contains NUL"));
    assert!(
        push(b"- a").contains("'- a': rules with a prefix")
            && push(b"!").contains("write '[!]' for the character itself")
    );
    assert!(push(&[b'a'; 1025]).contains("1025 bytes"));
    let mut many = FilterRules::default();
    (0..64).for_each(|_| many.push(Decision::Exclude, &[b'a'; 1024]).unwrap());
    assert_eq!(many.push(Decision::Exclude, b"a"), Err(FilterError::TooMany));
    let text = serde_json::to_string(&rules("+*.c -d/***")).unwrap();
    assert_eq!(text, r#"[["include","*.c"],["exclude","d/***"]]"#);
    assert_eq!(walk(&serde_json::from_str(&text).unwrap()), walk(&rules("+*.c -d/***")));
    assert!(serde_json::from_str::<FilterRules>(r#"[["exclude",""]]"#).is_err());
}

#[test]
fn hostile_pattern_runs_in_bounded_time() {
    let pattern = [b"*a".repeat(511), b"b".to_vec()].concat();
    let mut rules = FilterRules::default();
    rules.push(Decision::Exclude, &pattern).unwrap();
    rules.push(Decision::Exclude, &[b"**/".to_vec(), b"*a".repeat(500), b"**b".to_vec()].concat()).unwrap();
    // A backtracking matcher would not finish here.
    assert_eq!(rules.decide(&b"a".repeat(4096), false), Decision::Include);
}

proptest! {
    /// Compares with a simple backtracking matcher.
    #[test]
    fn wildcards_match_like_backtracking(pattern in "[ab/*?]{1,8}", text in "[ab/]{0,8}") {
        fn turns_back(pattern: &[u8], text: &[u8]) -> bool {
            match (pattern, text) {
                ([], []) => true,
                ([b'*', b'*', rest @ ..], _) => (0..=text.len()).any(|n| turns_back(rest, &text[n..])),
                ([b'*', rest @ ..], _) => {
                    (0..=text.len()).any(|n| !text[..n].contains(&b'/') && turns_back(rest, &text[n..]))
                }
                ([b'?', rest @ ..], [byte, text @ ..]) => *byte != b'/' && turns_back(rest, text),
                ([byte, rest @ ..], [first, text @ ..]) => byte == first && turns_back(rest, text),
                _ => false,
            }
        }
        let wildcard = Wildcard::new(pattern.as_bytes());
        let ours = wildcard.matches(text.bytes(), MatchStart::PathStart);
        prop_assert_eq!(ours, turns_back(pattern.as_bytes(), text.as_bytes()));
        let slashes = text.match_indices('/').map(|(at, _)| at + 1).chain([0]);
        let anywhere = slashes.fold(false, |any, at| any | turns_back(pattern.as_bytes(), &text.as_bytes()[at..]));
        prop_assert_eq!(wildcard.matches(text.bytes(), MatchStart::AfterAnySlash), anywhere);
    }

    #[test]
    fn no_input_panics(pattern: Vec<u8>, path: Vec<u8>, is_directory: bool) {
        let mut rules = FilterRules::default();
        if rules.push(Decision::Exclude, &pattern).is_ok() {
            rules.decide(&path, is_directory);
        }
    }
}

#[test]
fn exclude_first_excludes_exactly_one_path() {
    for path in [&b"a/b"[..], b"a/*", b"a[b]\\?", b"a\\b", b"**/\xff***", b"- x", b"!"] {
        let mut rules = FilterRules::default();
        rules.push(Decision::Include, b"*").unwrap();
        rules.exclude_first(path).unwrap();
        assert_eq!(rules.decide(path, false), Decision::Exclude, "{}", path.escape_ascii());
        for other in [&b"a/bc"[..], b"b", b"a/b/c", b"x/a/b", b"ab", b"x"] {
            assert_eq!(rules.decide(other, false), Decision::Include, "{}", path.escape_ascii());
        }
    }
}
