//! The plan of the hub: the sites file, and the time from which it is valid.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lfn_base::path::seconds;
use lfn_session::atomic_file::AtomicFile;
use serde::{Deserialize, Serialize};

use crate::schedule::next_valid_from;
use crate::sites::pairs::HostTable;
use crate::sites::{Sites, SitesErrors};
use crate::sync::PlanUpdate;

/// Maximum length of the file of the plan, bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The sites file of the hub.
#[derive(Debug, Clone)]
pub struct HubPlan {
    /// Text of the file.
    pub text: String,
    pub sites: Arc<Sites>,
    /// Time since 1970 from which the agents follow the file; 0 for the first file of a mesh.
    pub valid_from: Duration,
    /// Hosts that each host has tests with.
    partners: BTreeMap<String, BTreeSet<String>>,
}

impl HubPlan {
    /// Parses a sites file, which is valid from the start of the mesh.
    pub fn parse(text: String) -> Result<Self, SitesErrors> {
        let sites = Sites::parse(&text)?;
        let mut partners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let table = HostTable::new(&sites);
        for pair in sites.tests.iter().flat_map(|test| table.pairs(test)) {
            let (from, to) = (&table.host(pair.from).name, &table.host(pair.to).name);
            partners.entry(from.clone()).or_default().insert(to.clone());
            partners.entry(to.clone()).or_default().insert(from.clone());
        }
        Ok(HubPlan { text, partners, sites: Arc::new(sites), valid_from: Duration::ZERO })
    }

    /// Returns the plan when it is announced at `now` (since 1970), after the plan before it.
    pub(super) fn after(self, before: &HubPlan, now: Duration) -> Self {
        HubPlan { valid_from: next_valid_from(now, &before.sites), ..self }
    }

    /// Returns the hosts that a host has tests with.
    pub(super) fn partners(&self, host: &str) -> impl Iterator<Item = &str> {
        self.partners.get(host).into_iter().flatten().map(String::as_str)
    }

    /// Returns the message that announces the plan.
    pub(super) fn update(&self) -> PlanUpdate {
        PlanUpdate { digest: self.digest(), sites: self.text.clone(), valid_from: self.valid_from }
    }

    /// Returns a hash of the text and the time.
    pub(super) fn digest(&self) -> String {
        super::digest_of(&(&self.text, self.valid_from.as_secs()))
    }
}

/// Returns the plan that a hub keeps in a file. A missing or damaged file has none.
pub fn saved_plan(path: &Path) -> Option<HubPlan> {
    if std::fs::metadata(path).ok()?.len() > MAX_FILE_BYTES {
        return None;
    }
    let saved: SavedPlan = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    Some(HubPlan { valid_from: saved.valid_from, ..HubPlan::parse(saved.sites).ok()? })
}

/// File that keeps the plan, so that a hub that starts again announces the same time.
#[derive(Debug)]
pub(super) struct PlanFile(pub PathBuf);

/// Contents of the file.
#[derive(Debug, Serialize, Deserialize)]
struct SavedPlan {
    sites: String,
    #[serde(rename = "valid_from_seconds", with = "seconds")]
    valid_from: Duration,
}

impl PlanFile {
    /// Replaces the plan in the file.
    pub(super) fn write(&self, plan: &HubPlan) -> io::Result<()> {
        let mut file = AtomicFile::create_private(&self.0)?;
        let saved = SavedPlan { sites: plan.text.clone(), valid_from: plan.valid_from };
        serde_json::to_writer(&mut file, &saved)?;
        file.flush()?;
        file.commit()
    }
}
