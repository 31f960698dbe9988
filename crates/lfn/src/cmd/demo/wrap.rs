//! Wrapped lines of the demos.

/// Wraps an entry of a list at spaces. Further lines are indented.
pub fn wrap(text: &str, width: usize) -> String {
    wrap_with_indent(text, width, "    ")
}

/// Wraps text at spaces.
pub fn wrap_paragraph(text: &str, width: usize) -> String {
    wrap_with_indent(text, width, "")
}

fn wrap_with_indent(text: &str, width: usize, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().filter(|line| line.chars().count() + word.chars().count() < width);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(format!("{indent}{word}")),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_lines_are_short_and_keep_every_word() {
        let text = "1. goodput: the excess of half a BDP waits in the queue and no packet is lost";
        let wrapped = wrap(text, 30);
        assert!(wrapped.lines().all(|line| line.chars().count() <= 34));
        assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>(), text.split(' ').collect::<Vec<_>>());
    }
}
