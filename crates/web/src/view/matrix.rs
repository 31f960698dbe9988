//! The matrix: all pairs at one look, or the sites and the worst pairs of a large mesh.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::units::{BitRate, Ratio, show_duration};
use lfn_mesh::entry::{Entry, EntryKind, Outcome};

use super::mesh::{Mesh, MeshSite};
use super::state::{State, loss_ratio, state_of};

/// Hosts or sites up to which all pairs fit one table.
const MAX_GRID: usize = 40;
/// Worst pairs under the matrix of sites.
const MAX_WORST: usize = 40;
/// Pairs of a search.
const MAX_FOUND: usize = 200;

/// Sources of the first page, for [`MatrixView::new`].
pub(crate) struct MatrixInput<'a> {
    pub mesh: &'a Mesh,
    /// The newest entry of each pair and kind.
    pub latest: &'a [Entry],
    /// Part of a name of a host or site, to list its pairs.
    pub query: Option<String>,
    pub now: Duration,
}

/// The newest figures of a pair.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub state: State,
    /// Whether the figures are those of a load, or of a latency measurement only.
    pub has_load: bool,
    pub goodput: Option<BitRate>,
    pub predicted: Option<BitRate>,
    pub base_rtt: Option<Duration>,
    pub loss: Option<Ratio>,
    /// Verdict or error of the newest load, or the error of the latency measurement that makes the pair failed.
    pub verdict: String,
    /// Time since 1970 of the newest load or latency measurement.
    pub time: Duration,
}

impl Cell {
    /// Returns the figure of a small table: the goodput, or the RTT of a pair without loads.
    pub fn figure(&self) -> Option<String> {
        match self.has_load {
            true => self.goodput.map(|goodput| goodput.to_string()),
            false => self.base_rtt.map(show_duration),
        }
    }

    /// Order of the lists: worst state first, then the smallest share of the prediction, in ‰.
    fn rank(&self) -> (State, u64) {
        let share = self.goodput.zip(self.predicted).filter(|(_, predicted)| predicted.0 > 0);
        (self.state, share.map_or(u64::MAX, |(goodput, predicted)| goodput.0.saturating_mul(1000) / predicted.0))
    }
}

/// A pair with its newest figures.
#[derive(Debug, Clone)]
pub(crate) struct PairRow {
    pub from: String,
    pub to: String,
    pub cell: Cell,
}

/// A list of pairs, worst first, cut to a maximum.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pairs {
    pub rows: Vec<PairRow>,
    /// Number of pairs before the cut.
    pub total: usize,
}

/// The pairs between two sites.
#[derive(Debug, Clone, Default)]
pub(crate) struct SiteCell {
    /// Number of pairs in each state.
    pub counts: BTreeMap<State, usize>,
}

impl SiteCell {
    /// Returns the worst state; measured pairs come before pairs without a measurement.
    pub fn state(&self) -> State {
        self.counts.keys().next().copied().unwrap_or(State::Empty)
    }

    /// Returns the number of pairs in all states.
    pub fn pairs(&self) -> usize {
        self.counts.values().sum()
    }
}

/// The table of the first page.
#[derive(Debug, Clone)]
pub(crate) enum Grid {
    /// Every host with every host. Cells are absent for pairs without a measurement, and on the diagonal.
    Hosts { sites: Vec<MeshSite>, cells: BTreeMap<(String, String), Cell> },
    /// Every site with every site, by their positions.
    Sites { names: Vec<String>, cells: BTreeMap<(usize, usize), SiteCell> },
    /// Sites with the counts of their pairs, worst first: too many for a table of all with all.
    List { sites: Vec<(String, SiteCell)>, total: usize },
}

/// The first page, with its table and its lists.
#[derive(Debug, Clone)]
pub(crate) struct MatrixView {
    pub mesh: String,
    pub now: Duration,
    pub hosts: usize,
    /// Measured pairs in each state, in the order of [`State::ALL`] without `Empty`.
    pub counts: Vec<(State, usize)>,
    pub grid: Grid,
    /// The worst pairs, if the grid does not show all.
    pub worst: Pairs,
    pub query: Option<String>,
    /// Pairs that match the query.
    pub found: Option<Pairs>,
}

impl MatrixView {
    /// Chooses the table by the size of the mesh, and searches pairs.
    pub fn new(input: MatrixInput<'_>) -> Self {
        let MatrixInput { mesh, latest, query, now } = input;
        let rows = pair_rows(mesh, latest, now);
        let counts = State::ALL.into_iter().filter(|state| *state != State::Empty);
        let counts = counts.map(|state| (state, rows.iter().filter(|row| row.cell.state == state).count())).collect();
        let query = query.map(|query| query.trim().to_owned()).filter(|query| !query.is_empty());
        let found = query.as_ref().map(|query| search(mesh, &rows, query));
        let is_complete = mesh.host_count() <= MAX_GRID;
        let worst = if is_complete { Pairs::default() } else { worst_first(rows.iter(), MAX_WORST) };
        let grid = match (is_complete, mesh.sites.len() <= MAX_GRID) {
            (true, _) => host_grid(mesh, rows),
            (false, true) => site_grid(mesh, &rows),
            (false, false) => site_list(mesh, &rows),
        };
        MatrixView { mesh: mesh.name.clone(), now, hosts: mesh.host_count(), counts, grid, worst, query, found }
    }

    /// Returns the number of pairs with a measurement.
    pub fn measured(&self) -> usize {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}

/// Returns the pairs with their newest figures, in the order of their names.
pub(crate) fn pair_rows(mesh: &Mesh, latest: &[Entry], now: Duration) -> Vec<PairRow> {
    #[derive(Default)]
    struct Newest<'a> {
        load: Option<&'a Entry>,
        latency: Option<&'a Entry>,
    }
    let mut pairs: BTreeMap<(&str, &str), Newest<'_>> = BTreeMap::new();
    for entry in latest {
        let newest = match entry.kind {
            EntryKind::Load | EntryKind::Latency => pairs.entry((&entry.from, &entry.to)).or_default(),
            EntryKind::Path | EntryKind::Counters => continue,
        };
        match entry.kind {
            EntryKind::Load => newest.load = Some(entry),
            _ => newest.latency = Some(entry),
        }
    }
    let row = |((from, to), Newest { load, latency }): ((&str, &str), Newest<'_>)| PairRow {
        from: from.to_owned(),
        to: to.to_owned(),
        cell: cell(mesh, load, latency, now),
    };
    pairs.into_iter().map(row).collect()
}

fn cell(mesh: &Mesh, load: Option<&Entry>, latency: Option<&Entry>, now: Duration) -> Cell {
    let either = latency.or(load);
    let state = state_of(mesh, load, latency, now);
    Cell {
        state,
        has_load: load.is_some(),
        goodput: load.and_then(|load| load.goodput),
        predicted: load.and_then(|load| load.predicted),
        base_rtt: either.and_then(|entry| entry.base_rtt).or(load.and_then(|load| load.base_rtt)),
        loss: either.and_then(loss_ratio),
        verdict: verdict(state, load, latency),
        time: [load, latency].into_iter().flatten().map(|entry| entry.time).max().unwrap_or_default(),
    }
}

/// Returns the reason of the state.
fn verdict(state: State, load: Option<&Entry>, latency: Option<&Entry>) -> String {
    let error = |entry: &Entry| entry.error.clone().filter(|error| !error.is_empty());
    let failed = |entry: &&Entry| entry.outcome == Outcome::Failed;
    match (load, latency.filter(failed)) {
        (load, Some(latency)) if state == State::Failed && !load.is_some_and(|load| failed(&load)) => {
            let reason = error(latency).map(|error| format!(": {error}")).unwrap_or_default();
            format!("the latency measurement failed{reason}")
        }
        (Some(load), _) => error(load).unwrap_or_else(|| load.verdict.clone()),
        (None, _) => String::new(),
    }
}

/// Returns the worst pairs, at most `max`.
pub(crate) fn worst_first<'a>(rows: impl Iterator<Item = &'a PairRow>, max: usize) -> Pairs {
    let mut rows: Vec<&PairRow> = rows.collect();
    let total = rows.len();
    rows.sort_by_key(|row| row.cell.rank());
    Pairs { rows: rows.into_iter().take(max).cloned().collect(), total }
}

fn search(mesh: &Mesh, rows: &[PairRow], query: &str) -> Pairs {
    let query = query.to_lowercase();
    let matches = |host: &str| {
        host.to_lowercase().contains(&query)
            || mesh.site_of(host).is_some_and(|site| site.to_lowercase().contains(&query))
    };
    worst_first(rows.iter().filter(|row| matches(&row.from) || matches(&row.to)), MAX_FOUND)
}

fn host_grid(mesh: &Mesh, rows: Vec<PairRow>) -> Grid {
    let sites = mesh.sites.iter().filter(|site| !site.hosts.is_empty()).cloned().collect();
    Grid::Hosts { sites, cells: rows.into_iter().map(|row| ((row.from, row.to), row.cell)).collect() }
}

fn site_grid(mesh: &Mesh, rows: &[PairRow]) -> Grid {
    let mut cells: BTreeMap<(usize, usize), SiteCell> = BTreeMap::new();
    for row in rows {
        if let (Some(from), Some(to)) = (mesh.place_of(&row.from), mesh.place_of(&row.to)) {
            *cells.entry((from, to)).or_default().counts.entry(row.cell.state).or_default() += 1;
        }
    }
    Grid::Sites { names: mesh.sites.iter().map(|site| site.name.clone()).collect(), cells }
}

fn site_list(mesh: &Mesh, rows: &[PairRow]) -> Grid {
    let mut sites: Vec<SiteCell> = vec![SiteCell::default(); mesh.sites.len()];
    for row in rows {
        let (from, to) = (mesh.place_of(&row.from), mesh.place_of(&row.to));
        for place in from.into_iter().chain(to.filter(|to| Some(*to) != from)) {
            if let Some(site) = sites.get_mut(place) {
                *site.counts.entry(row.cell.state).or_default() += 1;
            }
        }
    }
    let total = sites.len();
    let mut sites: Vec<_> = mesh.sites.iter().map(|site| site.name.clone()).zip(sites).collect();
    // Worst state first, and of equal states the site with more pairs in it.
    let rank = |cell: &SiteCell| (cell.state(), usize::MAX - cell.counts.values().next().copied().unwrap_or(0));
    sites.sort_by_key(|(_, cell)| rank(cell));
    sites.truncate(MAX_WORST);
    Grid::List { sites, total }
}
