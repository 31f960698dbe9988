//! Splits a command line into words as a shell does: at blanks, with quotes and backslashes.

/// Returns the words, or `None` if a quote is not closed.
pub(super) fn split(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut chars) = (Vec::new(), None::<String>, text.chars());
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => read_single_quoted(&mut chars, word.get_or_insert_default())?,
            '"' => read_double_quoted(&mut chars, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(chars.next()?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

/// Reads up to the closing single quote. No character is special.
fn read_single_quoted(chars: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    loop {
        match chars.next()? {
            '\'' => return Some(()),
            c => word.push(c),
        }
    }
}

/// Reads up to the closing double quote. A backslash is literal unless it precedes a character that is special there.
fn read_double_quoted(chars: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    loop {
        match chars.next()? {
            '"' => return Some(()),
            '\\' => match chars.next()? {
                c @ ('"' | '\\' | '$' | '`') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_in_a_shell() {
        let cases: [(&str, &[&str]); 8] = [
            ("", &[]),
            ("ssh", &["ssh"]),
            ("  ssh -p\t2222 ", &["ssh", "-p", "2222"]),
            ("ssh -i 'my key'", &["ssh", "-i", "my key"]),
            (r#"ssh -o "ProxyCommand=a \"b\" \c""#, &["ssh", "-o", r#"ProxyCommand=a "b" \c"#]),
            (r"my\ ssh ''", &["my ssh", ""]),
            ("a'b'\"c\"d", &["abcd"]),
            ("a'\"'b", &["a\"b"]),
        ];
        for (text, words) in cases {
            assert_eq!(
                split(text).as_deref(),
                Some(words.iter().map(|w| w.to_string()).collect::<Vec<_>>().as_slice())
            );
        }
        for text in ["'", "a \"b", "a\\", "\"\\"] {
            assert_eq!(split(text), None, "{text}");
        }
    }
}
