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
    read_saved(path)?.newest()
}

/// Returns the plans that a hub keeps in a file.
pub(super) fn saved_plans(path: &Path) -> Option<Plans> {
    let saved = read_saved(path)?;
    let before = saved.before.clone().and_then(|text| HubPlan::parse(text).ok()).map(Arc::new);
    Some(Plans { before, newest: Arc::new(saved.newest()?) })
}

fn read_saved(path: &Path) -> Option<SavedPlan> {
    if std::fs::metadata(path).ok()?.len() > MAX_FILE_BYTES {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// The plan that was announced last, and the plan before it.
#[derive(Debug, Clone)]
pub(super) struct Plans {
    pub(super) before: Option<Arc<HubPlan>>,
    pub(super) newest: Arc<HubPlan>,
}

impl Plans {
    /// Returns the first plan of a mesh.
    pub(super) fn first(plan: HubPlan) -> Self {
        Plans { before: None, newest: Arc::new(plan) }
    }

    /// Reports whether the newest plan is not valid yet at `now` (since 1970).
    pub(super) fn is_pending(&self, now: Duration) -> bool {
        self.newest.valid_from > now
    }

    /// Reports whether the newest plan would become valid later than a plan that is announced at `now` (since 1970): the clock
    /// of the hub was ahead when the plan was announced.
    pub(super) fn is_too_late(&self, now: Duration) -> bool {
        self.is_pending(now) && self.newest.valid_from > self.next_valid_from(now)
    }

    /// Returns the plans when `plan` is announced at `now` (since 1970). `None` while the newest plan is not valid yet, unless it
    /// is too late: then `plan` replaces it.
    pub(super) fn followed_by(&self, plan: HubPlan, now: Duration) -> Option<Self> {
        let followed = match self.is_pending(now) {
            false => Plans { before: Some(self.newest.clone()), newest: self.newest.clone() },
            true if self.is_too_late(now) => self.clone(),
            true => return None,
        };
        let valid_from = followed.next_valid_from(now);
        Some(Plans { newest: Arc::new(HubPlan { valid_from, ..plan }), ..followed })
    }

    /// Returns the plans that agents follow at `now` (since 1970), or soon. The newest one is the last one.
    pub(super) fn in_use(&self, now: Duration) -> impl Iterator<Item = &HubPlan> {
        let before = self.before.iter().filter(move |_| self.is_pending(now));
        before.chain([&self.newest]).map(Arc::as_ref)
    }

    fn next_valid_from(&self, now: Duration) -> Duration {
        next_valid_from(now, &self.before.as_ref().unwrap_or(&self.newest).sites)
    }
}

/// File that keeps the plans, so that a hub that starts again announces the same time.
#[derive(Debug)]
pub(super) struct PlanFile(pub PathBuf);

/// Contents of the file.
#[derive(Debug, Serialize, Deserialize)]
struct SavedPlan {
    sites: String,
    #[serde(rename = "valid_from_seconds", with = "seconds")]
    valid_from: Duration,
    /// Sites file before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<String>,
}

impl SavedPlan {
    fn newest(self) -> Option<HubPlan> {
        Some(HubPlan { valid_from: self.valid_from, ..HubPlan::parse(self.sites).ok()? })
    }
}

impl PlanFile {
    /// Replaces the plans in the file.
    pub(super) fn write(&self, plans: &Plans) -> io::Result<()> {
        let mut file = AtomicFile::create_private(&self.0)?;
        let Plans { before, newest } = plans;
        let before = before.as_ref().map(|plan| plan.text.clone());
        let saved = SavedPlan { sites: newest.text.clone(), valid_from: newest.valid_from, before };
        serde_json::to_writer(&mut file, &saved)?;
        file.flush()?;
        file.commit()
    }
}
