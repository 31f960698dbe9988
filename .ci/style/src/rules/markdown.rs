//! The rule for links: a relative link of a Markdown file leads to a file of the tree, and its anchor to a heading.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::{Finding, Rule};
use crate::source::Tree;

/// Links and headings of a Markdown file.
#[derive(Default)]
struct Page {
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

/// Checks the links of all Markdown files. Fails if a file cannot be read.
pub fn check_links(tree: &Tree, findings: &mut Vec<Finding>) -> anyhow::Result<()> {
    let pages: BTreeMap<PathBuf, Page> =
        tree.markdown.iter().map(|file| (PathBuf::from(&file.path), Page::parse(&file.text))).collect();
    for (path, page) in &pages {
        for (line, link) in &page.links {
            if let Some(reason) = fault(tree, &pages, path, link) {
                let (file, advice) = (path.to_string_lossy().into_owned(), reason.to_owned());
                findings.push(Finding { rule: Rule::BrokenLink, file, line: *line, text: link.clone(), advice });
            }
        }
    }
    Ok(())
}

/// Returns the reason why `link` on the page `from` leads nowhere. Links to other sites are not followed.
fn fault(tree: &Tree, pages: &BTreeMap<PathBuf, Page>, from: &Path, link: &str) -> Option<&'static str> {
    if ["https://", "http://", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let Some(target) = (if file.is_empty() { Some(from.to_path_buf()) } else { resolve(from, file) }) else {
        return Some("outside of the tree");
    };
    if !tree.root.join(&target).exists() {
        return Some("no such file");
    }
    let page = pages.get(&target).filter(|_| !anchor.is_empty())?;
    (!page.anchors.contains(anchor)).then_some("no such heading")
}

/// Returns the path from the root for `file`, a path from the page `from`, or None if it leads out of the tree.
fn resolve(from: &Path, file: &str) -> Option<PathBuf> {
    let mut path = from.parent().map(Path::to_path_buf).unwrap_or_default();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir if !path.pop() => return None,
            Component::RootDir => return None,
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    Some(path)
}

impl Page {
    fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let mut heading: Option<String> = None;
        for (event, range) in Parser::new(text).into_offset_iter() {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((text[..range.start].matches('\n').count() + 1, dest_url.to_string()));
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading.take().unwrap_or_default()),
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                _ => {}
            }
        }
        page
    }

    /// Adds the anchor that code forges give a heading: lower case, hyphens for spaces, no punctuation, a number for
    /// a repeated heading.
    fn add_anchor(&mut self, heading: &str) {
        let kept = heading.trim().to_lowercase();
        let anchor: String = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(numbered).find(|name| !self.anchors.contains(name));
        self.anchors.extend(free);
    }
}
