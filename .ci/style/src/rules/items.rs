//! Rules for items: documented types and functions, unique public types, no tuple parameters, short test names, flags
//! with help.

use std::collections::BTreeMap;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, Fields, FnArg, ImplItemFn, Item, ItemFn, Lit, Meta, Signature, TraitItemFn, Type, Visibility,
};

use super::{Finding, Measures, Rule};
use crate::source::{RustFile, Tree};

/// Maximum length of the name of a test, in characters.
const MAX_TEST_NAME: usize = 60;

/// Checks the items of all Rust files.
pub fn check(tree: &Tree, measures: &mut Measures, findings: &mut Vec<Finding>) {
    let mut types: BTreeMap<(&str, String), Vec<(&RustFile, usize)>> = BTreeMap::new();
    for file in &tree.rust {
        let mut visitor = Items { file, findings, types: Vec::new(), in_test: file.is_test };
        visitor.visit_file(&file.syntax);
        if !file.is_test {
            for (name, line) in visitor.types {
                types.entry((&file.package, name)).or_default().push((file, line));
            }
        }
        check_test_names(file, measures, findings);
    }
    for ((_, name), places) in types {
        measures.public_types += places.len();
        measures.duplicate_types += places.len() - 1;
        for (file, line) in places.iter().filter(|_| places.len() > 1) {
            let others = places.iter().filter(|place| !std::ptr::eq(place.0, *file));
            let others: Vec<&str> = others.map(|(file, _)| file.path.as_str()).collect();
            let advice = format!("also a type of {}", others.join(", "));
            let (file, text) = (file.path.clone(), name.clone());
            findings.push(Finding { rule: Rule::DuplicateType, file, line: *line, text, advice });
        }
    }
}

/// Checks functions with a test attribute, and all functions and trial names of test programs, some of which have a
/// harness of their own. Reads lines, because tests inside of macros are no syntax items.
fn check_test_names(file: &RustFile, measures: &mut Measures, findings: &mut Vec<Finding>) {
    let mut names = Vec::new();
    let mut is_marked = false;
    for (index, line) in file.lines.iter().enumerate() {
        is_marked |= line.trim_start().starts_with("#[") && line.contains("test]");
        let Some((_, rest)) = line.split_once("fn ").filter(|(before, _)| !before.contains("//")) else { continue };
        if is_marked || file.is_test {
            measures.tests += usize::from(is_marked);
            names.push((index + 1, rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()));
        }
        is_marked = false;
    }
    let is_name = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let trials = file.strings.iter().filter(|_| file.is_test).flatten();
    let trials = trials.map(|text| (text.line, text.text.trim_matches('"'))).filter(|(_, text)| is_name(text));
    for (line, name) in names.into_iter().chain(trials).filter(|(_, name)| name.chars().count() > MAX_TEST_NAME) {
        measures.long_test_names += 1;
        let advice = format!("{} characters, the maximum is {MAX_TEST_NAME}", name.chars().count());
        let (file, text) = (file.path.clone(), name.to_owned());
        findings.push(Finding { rule: Rule::LongTestName, file, line, text, advice });
    }
}

/// Walks the items of a file.
struct Items<'a> {
    file: &'a RustFile,
    findings: &'a mut Vec<Finding>,
    types: Vec<(String, usize)>,
    in_test: bool,
}

impl Items<'_> {
    fn report(&mut self, rule: Rule, at: impl Spanned, name: &syn::Ident) {
        let (file, line) = (self.file.path.clone(), at.span().start().line);
        self.findings.push(Finding { rule, file, line, text: name.to_string(), advice: String::new() });
    }

    fn check_type(&mut self, visibility: &Visibility, name: &syn::Ident, attributes: &[Attribute]) {
        if self.in_test || matches!(visibility, Visibility::Inherited) {
            return;
        }
        self.types.push((name.to_string(), name.span().start().line));
        self.check_doc(visibility, name, attributes);
    }

    fn check_doc(&mut self, visibility: &Visibility, name: &syn::Ident, attributes: &[Attribute]) {
        if !self.in_test && matches!(visibility, Visibility::Public(_)) && !is_documented(attributes) {
            self.report(Rule::MissingDoc, name, name);
        }
    }

    fn check_parameters(&mut self, signature: &Signature) {
        for input in &signature.inputs {
            if let FnArg::Typed(parameter) = input
                && is_tuple(&parameter.ty)
            {
                self.report(Rule::TupleParameter, parameter, &signature.ident);
            }
        }
    }

    /// Checks the fields of a struct or the variants of an enum that clap turns into flags and commands.
    fn check_flags<'f>(
        &mut self,
        item: &[Attribute],
        members: impl Iterator<Item = (&'f syn::Ident, &'f [Attribute])>,
    ) {
        if !["Args", "Parser", "Subcommand", "ValueEnum"].iter().any(|name| derives(item, name)) {
            return;
        }
        for (name, attributes) in members {
            let words = ["flatten", "subcommand", "skip", "help"];
            if !is_documented(attributes) && !has_clap_word(attributes, &words) {
                self.report(Rule::FlagWithoutHelp, name, name);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Items<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let before = self.in_test;
        match item {
            Item::Struct(item) => {
                self.check_type(&item.vis, &item.ident, &item.attrs);
                let fields = item.fields.iter();
                self.check_flags(
                    &item.attrs,
                    fields.filter_map(|field| Some((field.ident.as_ref()?, &field.attrs[..]))),
                );
            }
            Item::Enum(item) => {
                self.check_type(&item.vis, &item.ident, &item.attrs);
                // A command that wraps a struct has the help of this struct.
                let variants = item.variants.iter().filter(|variant| !matches!(variant.fields, Fields::Unnamed(_)));
                self.check_flags(&item.attrs, variants.map(|variant| (&variant.ident, &variant.attrs[..])));
            }
            Item::Union(item) => self.check_type(&item.vis, &item.ident, &item.attrs),
            Item::Trait(item) => self.check_type(&item.vis, &item.ident, &item.attrs),
            Item::Type(item) => self.check_type(&item.vis, &item.ident, &item.attrs),
            Item::Mod(item) => self.in_test |= is_test_only(&item.attrs),
            Item::Impl(item) => self.in_test |= is_test_only(&item.attrs),
            _ => {}
        }
        visit::visit_item(self, item);
        self.in_test = before;
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_test_only(&item.attrs) {
            self.check_doc(&item.vis, &item.sig.ident, &item.attrs);
        }
        self.check_parameters(&item.sig);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_test_only(&item.attrs) {
            self.check_doc(&item.vis, &item.sig.ident, &item.attrs);
        }
        self.check_parameters(&item.sig);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.check_parameters(&item.sig);
        visit::visit_trait_item_fn(self, item);
    }
}

/// Reports whether the attributes have a doc comment with text.
fn is_documented(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).any(|attribute| match &attribute.meta {
        Meta::NameValue(meta) => match &meta.value {
            Expr::Lit(literal) => matches!(&literal.lit, Lit::Str(text) if !text.value().trim().is_empty()),
            _ => true,
        },
        _ => false,
    })
}

/// Reports whether a type is a tuple, or a reference to a tuple. The unit type is none.
fn is_tuple(ty: &Type) -> bool {
    match ty {
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        Type::Reference(reference) => is_tuple(&reference.elem),
        Type::Paren(paren) => is_tuple(&paren.elem),
        _ => false,
    }
}

/// Reports whether an item is compiled for tests alone.
fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|ident| ident == "test")
    })
}

/// Reports whether the attributes derive the trait `name`.
fn derives(attributes: &[Attribute], name: &str) -> bool {
    let mut is_derived = false;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        // An attribute that does not parse derives nothing: the compiler reports it.
        let _ = attribute.parse_nested_meta(|meta| {
            is_derived |= meta.path.segments.last().is_some_and(|segment| segment.ident == name);
            Ok(())
        });
    }
    is_derived
}

/// Reports whether an attribute of clap has one of `words`.
fn has_clap_word(attributes: &[Attribute], words: &[&str]) -> bool {
    let clap =
        |attribute: &&Attribute| ["arg", "command", "clap", "value"].iter().any(|name| attribute.path().is_ident(name));
    attributes.iter().filter(clap).any(|attribute| match &attribute.meta {
        Meta::List(list) if list.tokens.to_string().replace(' ', "").contains("help=\"\"") => false,
        Meta::List(list) => list.tokens.clone().into_iter().any(
            |token| matches!(&token, proc_macro2::TokenTree::Ident(ident) if words.iter().any(|word| ident == word)),
        ),
        _ => false,
    })
}
