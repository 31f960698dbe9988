//! The uses in one file: every path in its code, with the file that defines the path.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::Visibility;
use syn::visit::{self, Visit};

use crate::module_tree::{self, ModuleTree, Target};

/// One path in the code that another file of the same crate defines.
pub(crate) struct Use {
    pub(crate) line: usize,
    /// Path as the code writes it.
    pub(crate) path: String,
    /// Number of the file that defines the path.
    pub(crate) definer: usize,
}

/// Returns the uses in file number `file`, in the order of the code.
pub(crate) fn find(tree: &ModuleTree, file: usize) -> Vec<Use> {
    let mut finder = Finder { tree, file, module: tree.files[file].module, uses: Vec::new() };
    finder.visit_file(&tree.files[file].syntax);
    finder.uses
}

struct Finder<'a> {
    tree: &'a ModuleTree,
    file: usize,
    /// Innermost module around the code.
    module: usize,
    uses: Vec<Use>,
}

impl Finder<'_> {
    fn record(&mut self, path: &[String], span: Span) {
        for target in self.tree.resolve(self.module, path) {
            if let Target::ItemIn(module) = target {
                self.add(module, path, span);
            }
        }
    }

    /// Adds a use of `module`, unless the module is in this file.
    fn add(&mut self, module: usize, path: &[String], span: Span) {
        let definer = self.tree.file_of(module);
        if definer != self.file {
            self.uses.push(Use { line: span.start().line, path: path.join("::"), definer });
        }
    }

    fn record_tokens(&mut self, tokens: TokenStream) {
        for (path, span) in paths_in(tokens) {
            self.record(&path, span);
        }
    }

    /// Records the functions that attributes such as `serde(default = "path")` name in strings.
    fn record_strings(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.record_strings(group.stream()),
                TokenTree::Literal(literal) => {
                    let syn::Lit::Str(text) = syn::Lit::new(literal) else { continue };
                    if let Ok(path) = text.parse::<syn::Path>() {
                        self.record(&segments(&path), text.span());
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !module_tree::is_for_tests(module_tree::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !module_tree::is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let outer = self.module;
        if item.content.is_some()
            && let Some(inner) = self.tree.child(outer, &item.ident.to_string())
        {
            self.module = inner;
            visit::visit_item_mod(self, item);
            self.module = outer;
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if matches!(item.vis, Visibility::Public(_)) {
            return;
        }
        let is_private = match &item.vis {
            Visibility::Restricted(limit) => limit.path.is_ident("self"),
            _ => true,
        };
        for import in module_tree::imports(&item.tree) {
            for target in self.tree.resolve(self.module, &import.path) {
                let module = match target {
                    Target::ItemIn(module) => module,
                    Target::Module(module) if import.name.is_none() && self.tree.defines_items(module) => module,
                    Target::Module(_) => continue,
                };
                if is_private || !self.tree.is_below(module, self.module) {
                    self.add(module, &import.path, import.span);
                }
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            self.record(&segments(path), first.ident.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        match &*call.func {
            syn::Expr::Path(function) => visit::visit_expr_path(self, function),
            other => self.visit_expr(other),
        }
        call.args.iter().for_each(|argument| self.visit_expr(argument));
    }

    fn visit_expr_path(&mut self, expression: &'ast syn::ExprPath) {
        if !may_be_variable(&segments(&expression.path)) {
            visit::visit_expr_path(self, expression);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.record_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.record_tokens(list.tokens.clone());
            self.record_strings(list.tokens.clone());
        }
    }
}

/// Returns the paths in tokens that only a macro understands.
pub(crate) fn paths_in(tokens: TokenStream) -> Vec<(Vec<String>, Span)> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_punct = |index: usize, character: char| matches!(tokens.get(index), Some(TokenTree::Punct(punct)) if punct.as_char() == character);
    let is_colon = |index: usize| is_punct(index, ':');
    let mut paths = Vec::new();
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        index += 1;
        match token {
            TokenTree::Group(group) => paths.extend(paths_in(group.stream())),
            TokenTree::Ident(ident) => {
                let is_range = index >= 3 && is_punct(index - 2, '.') && is_punct(index - 3, '.');
                let is_field = index >= 2 && !is_range && (is_punct(index - 2, '.') || is_punct(index - 2, '\''));
                let mut path = vec![ident.to_string()];
                while is_colon(index)
                    && is_colon(index + 1)
                    && let Some(TokenTree::Ident(next)) = tokens.get(index + 2)
                {
                    path.push(next.to_string());
                    index += 3;
                }
                let is_call = matches!(tokens.get(index), Some(TokenTree::Group(group))
                    if group.delimiter() == Delimiter::Parenthesis);
                if !is_field && (is_call || !may_be_variable(&path)) {
                    paths.push((path, ident.span()));
                }
            }
            TokenTree::Literal(_) | TokenTree::Punct(_) => {}
        }
    }
    paths
}

/// Reports whether a path can name a local variable.
fn may_be_variable(path: &[String]) -> bool {
    path.len() == 1 && path[0].starts_with(|first: char| first.is_lowercase() || first == '_')
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}
