//! What a reader sees, computed from entries, the sites file and the time. Nothing here knows HTML.

mod matrix;
mod mesh;
mod metric;
mod pair;
mod plan;
mod site;
mod state;

pub(crate) use matrix::{Cell, Grid, GridSite, MatrixInput, MatrixView, PairRow, Pairs, SiteCell};
pub(crate) use mesh::{Mesh, MeshHost, MeshSite};
pub(crate) use metric::{Metric, MetricInput, metrics};
pub(crate) use pair::{ConditionChange, HopRow, PairInput, PairView, RoutePair, Sample};
pub(crate) use plan::{PlanInput, PlanView};
pub(crate) use site::{SiteInput, SiteView};
pub(crate) use state::{State, loss_ratio};
