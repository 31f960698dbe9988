//! A command line split into words, as a shell does it: blanks between, quotes and backslashes for what holds one.

/// The words; `None` if a quote is not closed.
pub(super) fn split(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut chars) = (Vec::new(), None::<String>, text.chars());
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => single(&mut chars, word.get_or_insert_default())?,
            '"' => double(&mut chars, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(chars.next()?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

/// Between single quotes everything stands for itself.
fn single(chars: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    loop {
        match chars.next()? {
            '\'' => return Some(()),
            c => word.push(c),
        }
    }
}

/// Inside double quotes a backslash stands for itself unless what follows has a meaning there.
fn double(chars: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
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
    fn words_are_what_a_shell_makes_of_them() {
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
