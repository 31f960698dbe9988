//! The modules of one crate and the names in them, and the search for the module that defines a path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use syn::punctuated::Punctuated;
use syn::{Item, UseTree};

/// Modules and files of one crate. Modules for tests are not in the tree.
pub(crate) struct ModuleTree {
    pub(crate) files: Vec<SourceFile>,
    modules: Vec<Module>,
}

/// File of the crate with its syntax tree.
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    /// Module whose items the file contains.
    pub(crate) module: usize,
    pub(crate) syntax: syn::File,
}

/// One module, in its own file or inline.
struct Module {
    /// Complete name, such as `link::stages`.
    name: String,
    file: usize,
    parent: Option<usize>,
    /// One name can have a type, a value, a macro and a module.
    names: BTreeMap<String, Vec<Name>>,
    /// Paths of the imports that end with `*`.
    globs: Vec<Vec<String>>,
}

/// Meaning of a name in a module.
enum Name {
    /// The module defines an item with this name.
    Item,
    Module(usize),
    Import(Vec<String>),
}

/// Result of a search for a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// Item that this module defines.
    ItemIn(usize),
    Module(usize),
}

/// One name that a `use` imports; `*` has no name.
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    pub(crate) name: Option<String>,
    pub(crate) span: proc_macro2::Span,
}

/// Searches in progress, because imports can refer to each other.
type Seen = BTreeSet<(usize, Vec<String>)>;

impl ModuleTree {
    /// Reads the crate with this root file and all files that its modules name.
    pub(crate) fn read(name: &str, root: &Path) -> anyhow::Result<ModuleTree> {
        let mut tree = ModuleTree { files: Vec::new(), modules: Vec::new() };
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        tree.read_file(name.to_owned(), None, root, &folder)?;
        Ok(tree)
    }

    pub(crate) fn file_of(&self, module: usize) -> usize {
        self.modules[module].file
    }

    pub(crate) fn name_of_file(&self, file: usize) -> &str {
        &self.modules[self.files[file].module].name
    }

    /// Returns the inline module `name` of `module`.
    pub(crate) fn child(&self, module: usize, name: &str) -> Option<usize> {
        self.modules[module].names.get(name)?.iter().find_map(|meaning| match meaning {
            Name::Module(child) => Some(*child),
            Name::Item | Name::Import(_) => None,
        })
    }

    /// Reports whether `module` is a child of `ancestor`, or a child of one of its children.
    pub(crate) fn is_below(&self, module: usize, ancestor: usize) -> bool {
        let parents = std::iter::successors(self.modules[module].parent, |parent| self.modules[*parent].parent);
        parents.into_iter().any(|parent| parent == ancestor)
    }

    /// Reports whether the module has items of its own.
    pub(crate) fn defines_items(&self, module: usize) -> bool {
        self.modules[module].names.values().flatten().any(|meaning| matches!(meaning, Name::Item))
    }

    /// Returns the modules that define the path as seen from `module`. The result is empty for paths of other crates,
    /// local variables and type parameters.
    pub(crate) fn resolve(&self, module: usize, path: &[String]) -> BTreeSet<Target> {
        self.search(module, path, &mut Seen::new())
    }

    /// Reads the file of one module. `folder` has the files of its children. Returns the module.
    fn read_file(&mut self, name: String, parent: Option<usize>, path: &Path, folder: &Path) -> anyhow::Result<usize> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let syntax = syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        let (file, module) = (self.files.len(), self.modules.len());
        self.modules.push(Module { name, file, parent, names: BTreeMap::new(), globs: Vec::new() });
        self.files.push(SourceFile { path: path.to_owned(), module, syntax: syntax.clone() });
        self.add_items(module, &syntax.items, folder)?;
        Ok(module)
    }

    fn add_items(&mut self, module: usize, items: &[Item], folder: &Path) -> anyhow::Result<()> {
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            match item {
                Item::Mod(child) => self.add_module(module, child, folder)?,
                Item::Use(item) => self.add_imports(module, item),
                _ => {
                    if let Some(name) = defined_name(item) {
                        self.add_exported_macro(module, item, &name);
                        self.add_name(module, name, Name::Item);
                    }
                }
            }
            self.add_local_imports(module, item)?;
        }
        Ok(())
    }

    fn add_module(&mut self, parent: usize, item: &syn::ItemMod, folder: &Path) -> anyhow::Result<()> {
        let short = item.ident.to_string();
        let name = format!("{}::{short}", self.modules[parent].name);
        let unsupported = item.attrs.iter().find_map(unsupported_attribute);
        if let Some(attribute) = unsupported {
            anyhow::bail!("{name}: the attribute {attribute} of a module is not supported");
        }
        let children = folder.join(&short);
        let module = match &item.content {
            Some((_, items)) => {
                let module = self.modules.len();
                let file = self.modules[parent].file;
                let (names, globs) = (BTreeMap::new(), Vec::new());
                self.modules.push(Module { name, file, parent: Some(parent), names, globs });
                self.add_items(module, items, &children)?;
                module
            }
            None => {
                let flat = folder.join(format!("{short}.rs"));
                let path = if flat.is_file() { flat } else { children.join("mod.rs") };
                self.read_file(name, Some(parent), &path, &children)?
            }
        };
        self.add_name(parent, short, Name::Module(module));
        Ok(())
    }

    /// Adds a macro with `macro_export` to the names of the crate root.
    fn add_exported_macro(&mut self, module: usize, item: &Item, name: &str) {
        if module != 0 && attributes(item).iter().any(|attribute| attribute.path().is_ident("macro_export")) {
            let modules = self.modules[module].name.split("::").skip(1);
            let path = ["crate"].into_iter().chain(modules).chain([name]).map(str::to_owned).collect();
            self.add_name(0, name.to_owned(), Name::Import(path));
        }
    }

    fn add_imports(&mut self, module: usize, item: &syn::ItemUse) {
        for import in imports(&item.tree) {
            match import.name {
                Some(name) => self.add_name(module, name, Name::Import(import.path)),
                None => self.modules[module].globs.push(import.path),
            }
        }
    }

    /// Adds the imports inside functions to the names of the module. The macro `include!` is an error.
    fn add_local_imports(&mut self, module: usize, item: &Item) -> anyhow::Result<()> {
        #[derive(Default)]
        struct Locals {
            imports: Vec<syn::ItemUse>,
            includes: bool,
        }
        impl<'ast> syn::visit::Visit<'ast> for Locals {
            fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
                self.imports.push(item.clone());
            }

            fn visit_macro(&mut self, call: &'ast syn::Macro) {
                self.includes |= call.path.segments.last().is_some_and(|name| name.ident == "include");
            }
        }
        if matches!(item, Item::Mod(_) | Item::Use(_)) {
            return Ok(());
        }
        let mut locals = Locals::default();
        syn::visit::Visit::visit_item(&mut locals, item);
        let name = &self.modules[module].name;
        anyhow::ensure!(!locals.includes, "{name}: the macro include! is not supported");
        locals.imports.iter().for_each(|item| self.add_imports(module, item));
        Ok(())
    }

    fn add_name(&mut self, module: usize, name: String, meaning: Name) {
        self.modules[module].names.entry(name).or_default().push(meaning);
    }

    fn search(&self, module: usize, path: &[String], seen: &mut Seen) -> BTreeSet<Target> {
        if !seen.insert((module, path.to_vec())) {
            return BTreeSet::new();
        }
        let mut at = module;
        let mut rest = path;
        let mut is_absolute = false;
        while let Some((first, tail)) = rest.split_first() {
            at = match (first.as_str(), self.modules[at].parent) {
                ("crate", _) => 0,
                ("self", _) => at,
                ("super", Some(parent)) => parent,
                _ => break,
            };
            (rest, is_absolute) = (tail, true);
        }
        let Some((first, tail)) = rest.split_first() else {
            return if is_absolute { BTreeSet::from([Target::Module(at)]) } else { BTreeSet::new() };
        };
        let mut targets = self.look_up(at, first, seen);
        for segment in tail {
            let mut next = BTreeSet::new();
            for target in targets {
                match target {
                    // An associated item or a variant.
                    Target::ItemIn(_) => _ = next.insert(target),
                    Target::Module(module) => next.extend(self.look_up(module, segment, seen)),
                }
            }
            targets = next;
        }
        targets
    }

    fn look_up(&self, module: usize, name: &str, seen: &mut Seen) -> BTreeSet<Target> {
        let Module { names, globs, .. } = &self.modules[module];
        let mut targets = BTreeSet::new();
        for meaning in names.get(name).into_iter().flatten() {
            match meaning {
                Name::Item => _ = targets.insert(Target::ItemIn(module)),
                Name::Module(child) => _ = targets.insert(Target::Module(*child)),
                Name::Import(path) => targets.extend(self.search(module, path, seen)),
            }
        }
        if !targets.is_empty() {
            return targets;
        }
        for glob in globs {
            let path: Vec<String> = glob.iter().cloned().chain([name.to_owned()]).collect();
            // The path of an enum ends at the enum, whether or not it has this variant.
            let is_of_module =
                self.search(module, glob, &mut seen.clone()).iter().all(|target| matches!(target, Target::Module(_)));
            if is_of_module {
                targets.extend(self.search(module, &path, seen));
            }
        }
        targets
    }
}

/// Returns every name that the tree of a `use` imports.
pub(crate) fn imports(tree: &UseTree) -> Vec<Import> {
    let mut found = Vec::new();
    add_imports(tree, &mut Vec::new(), &mut found);
    found
}

fn add_imports(tree: &UseTree, prefix: &mut Vec<String>, found: &mut Vec<Import>) {
    let import = |path: &[String], ident: &syn::Ident, name: &syn::Ident| {
        let mut path = path.to_vec();
        // `use a::b::{self}` imports `b`.
        if ident != "self" || path.is_empty() {
            path.push(ident.to_string());
        }
        let name = if name == "self" { path.last().cloned() } else { Some(name.to_string()) };
        Import { path, name, span: ident.span() }
    };
    match tree {
        UseTree::Path(part) => {
            prefix.push(part.ident.to_string());
            add_imports(&part.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Name(part) => found.push(import(prefix, &part.ident, &part.ident)),
        UseTree::Rename(part) => found.push(import(prefix, &part.ident, &part.rename)),
        UseTree::Glob(part) => {
            found.push(Import { path: prefix.clone(), name: None, span: part.star_token.spans[0] });
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_imports(tree, prefix, found)),
    }
}

/// Reports whether the attributes limit an item to tests.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if attribute.path().is_ident("test") {
            return true;
        }
        attribute.path().is_ident("cfg") && attribute.parse_args().is_ok_and(|condition| needs_test(&condition))
    })
}

/// Reports whether a condition of `cfg` is true only in a test.
fn needs_test(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::List(list) if list.path.is_ident("all") => {
            let parts = list.parse_args_with(Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated);
            parts.is_ok_and(|parts| parts.iter().any(needs_test))
        }
        other => matches!(other, syn::Meta::Path(path) if path.is_ident("test")),
    }
}

/// Returns the name of an attribute of a module that changes its file or the scope of its macros.
fn unsupported_attribute(attribute: &syn::Attribute) -> Option<&'static str> {
    let name = |path: &syn::Path| ["path", "macro_use"].into_iter().find(|name| path.is_ident(name));
    if !attribute.path().is_ident("cfg_attr") {
        return name(attribute.path());
    }
    let parts = attribute.parse_args_with(Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated);
    parts.ok()?.iter().skip(1).find_map(|part| name(part.path()))
}

/// Returns the attributes of an item.
pub(crate) fn attributes(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn defined_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}
