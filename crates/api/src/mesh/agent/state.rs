//! State of an agent that outlives its process: the ticket of the hub, the plans and the access list.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use lfn_mesh::schedule::DatedPlans;
use lfn_mesh::sites::Sites;
use lfn_mesh::sync::{AccessList, AccessUpdate, PlanUpdate};
use lfn_session::Ticket;
use lfn_session::identity::{self, read_secret, write_secret};
use lfn_sys::clock;
use serde::{Deserialize, Serialize};

use super::shared::AgentPlan;
use crate::mesh::MeshError;

/// File of the state.
const FILE: &str = "agent.json";

/// Contents of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Saved {
    hub: Option<String>,
    /// Random name of this state.
    instance: String,
    host: String,
    plans: DatedPlans<PlanUpdate>,
    access: Option<AccessUpdate>,
}

/// The saved state of an agent.
#[derive(Debug)]
pub(super) struct AgentState {
    path: PathBuf,
    hub: Ticket,
    saved: Saved,
}

impl AgentState {
    /// Reads the state. A given ticket replaces the saved one; the plan of another hub is forgotten.
    pub(super) fn open(directory: &Path, hub: Option<Ticket>) -> Result<Self, MeshError> {
        let path = directory.join(FILE);
        let mut saved = match read_secret(&path)? {
            Some(text) => serde_json::from_str(&text).map_err(|_| MeshError::DamagedState(path.clone()))?,
            None => Saved::default(),
        };
        let before = saved.hub.as_deref().and_then(|ticket| ticket.parse::<Ticket>().ok());
        if let Some(given) = &hub {
            let is_same = before
                .as_ref()
                .is_some_and(|before| before.fingerprint == given.fingerprint && before.token.matches(&given.token));
            if !is_same {
                saved = Saved::default();
            }
        }
        let hub = hub.or(before).ok_or(MeshError::NoTicket)?;
        let ticket = Some(hub.to_string());
        let is_changed = saved.hub != ticket;
        saved.hub = ticket;
        let is_unnamed = saved.instance.is_empty();
        if is_unnamed {
            saved.instance = HEXLOWER.encode(identity::new_token()?.as_bytes());
        }
        let state = AgentState { path, hub, saved };
        // An agent with a full disk starts with what it has.
        if is_changed {
            state.save()?;
        } else if is_unnamed {
            // The next update saves the name.
            let _ = state.save();
        }
        Ok(state)
    }

    /// Returns the random name of the state. It stays the same when the agent starts again.
    pub(super) fn instance(&self) -> &str {
        &self.saved.instance
    }

    /// Returns the ticket of the hub.
    pub(super) fn hub(&self) -> &Ticket {
        &self.hub
    }

    /// Returns the directory of the state.
    pub(super) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Returns the plans that the hub announced.
    pub(super) fn saved_plans(&self) -> DatedPlans<Arc<AgentPlan>> {
        self.saved.plans.filter_map(|update| parse_plan(&self.saved.host, update).ok().map(Arc::new))
    }

    /// Returns the access list of the last answer of the hub.
    pub(super) fn saved_access(&self) -> AccessList {
        self.saved.access.as_ref().map(|update| update.access.clone()).unwrap_or_default()
    }

    /// Returns the digest of the saved access list.
    pub(super) fn access_digest(&self) -> Option<String> {
        self.saved.access.as_ref().map(|update| update.digest.clone())
    }

    /// Returns the digest of the plan that the hub announced last.
    pub(super) fn plan_digest(&self) -> Option<String> {
        self.saved.plans.newest().map(|update| update.digest.clone())
    }

    /// Saves the parts of an answer that are new.
    pub(super) fn update(
        &mut self,
        host: &str,
        plan: Option<PlanUpdate>,
        access: Option<AccessUpdate>,
    ) -> Result<(), MeshError> {
        if plan.is_none() && access.is_none() && self.saved.host == host {
            return Ok(());
        }
        host.clone_into(&mut self.saved.host);
        if let Some(plan) = plan {
            self.saved.plans.announce(plan, clock::since_1970());
        }
        self.saved.access = access.or_else(|| self.saved.access.take());
        self.save()
    }

    fn save(&self) -> Result<(), MeshError> {
        let text = serde_json::to_string(&self.saved).map_err(|_| MeshError::DamagedState(self.path.clone()))?;
        Ok(write_secret(&self.path, &text)?)
    }
}

/// Parses a plan of the hub for the agent of a host.
pub(super) fn parse_plan(host: &str, update: &PlanUpdate) -> Result<AgentPlan, String> {
    let sites = Sites::parse(&update.sites).map_err(|errors| errors.to_string())?;
    Ok(AgentPlan {
        digest: update.digest.clone(),
        host: host.to_owned(),
        sites,
        valid_from: update.valid_from,
        days: Default::default(),
    })
}
