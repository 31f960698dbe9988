//! The crates of the workspace and the dependencies between them, read from `Cargo.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// One package in the directory of crates.
pub(crate) struct Package {
    pub(crate) name: String,
    /// Names of all dependencies except those of tests, of this workspace and of others.
    pub(crate) dependencies: BTreeSet<String>,
    /// Root files of the library and the binary, each with the first name of its modules.
    pub(crate) roots: Vec<(String, PathBuf)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Manifest {
    package: PackageName,
    #[serde(flatten)]
    always: Dependencies,
    #[serde(default)]
    target: BTreeMap<String, Dependencies>,
}

#[derive(Deserialize)]
struct PackageName {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Dependencies {
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
    #[serde(default)]
    build_dependencies: BTreeMap<String, toml::Value>,
}

/// The part of the workspace manifest that the packages inherit.
#[derive(Default, Deserialize)]
struct Workspace {
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
struct WorkspaceManifest {
    #[serde(default)]
    workspace: Workspace,
}

/// Reads every package directly below `root/crates`, in the order of the directory names.
pub(crate) fn read(root: &Path) -> anyhow::Result<Vec<Package>> {
    let folder = &root.join("crates");
    let workspace: WorkspaceManifest = read_toml(&root.join("Cargo.toml"))?;
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        paths.push(entry?.path());
    }
    paths.sort();
    let packages: Vec<Package> = paths
        .iter()
        .filter(|path| path.join("Cargo.toml").is_file())
        .map(|path| read_package(path, &workspace.workspace))
        .collect::<anyhow::Result<_>>()?;
    anyhow::ensure!(!packages.is_empty(), "no crate in {}", folder.display());
    Ok(packages)
}

fn read_toml<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    toml::from_str(&text).with_context(|| format!("cannot read {}", file.display()))
}

fn read_package(path: &Path, workspace: &Workspace) -> anyhow::Result<Package> {
    let manifest: Manifest = read_toml(&path.join("Cargo.toml"))?;
    let mut dependencies = BTreeSet::new();
    for group in std::iter::once(&manifest.always).chain(manifest.target.values()) {
        for (name, value) in group.dependencies.iter().chain(&group.build_dependencies) {
            let is_inherited = value.get("workspace").and_then(toml::Value::as_bool) == Some(true);
            let value = workspace.dependencies.get(name).filter(|_| is_inherited).unwrap_or(value);
            let package = value.get("package").and_then(toml::Value::as_str);
            dependencies.insert(package.unwrap_or(name).to_owned());
        }
    }
    let short = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let [library, binary] = ["src/lib.rs", "src/main.rs"].map(|file| path.join(file));
    let mut roots = Vec::new();
    if binary.is_file() {
        let name = if library.is_file() { format!("{short}-binary") } else { short.clone() };
        roots.push((name, binary));
    }
    if library.is_file() {
        roots.push((short, library));
    }
    anyhow::ensure!(!roots.is_empty(), "no src/lib.rs and no src/main.rs in {}", path.display());
    Ok(Package { name: manifest.package.name, dependencies, roots })
}
