//! What a reader sees, computed from entries, the sites file and the time. Nothing here knows HTML.

mod days;
mod matrix;
mod mesh;
mod pair;
mod plan;
mod site;
mod state;
mod words;

pub(crate) use days::DaysView;
pub(crate) use matrix::{Cell, Grid, MatrixInput, MatrixView, PairRow, Pairs, SiteCell};
pub(crate) use mesh::{Mesh, MeshSite};
pub(crate) use pair::{ConditionChange, Line, PairInput, PairView, Route, Sample, newest_change};
pub(crate) use plan::{PlanView, Rows};
pub(crate) use site::SiteView;
pub(crate) use state::{State, loss_ratio};
pub(crate) use words::{figures, remarks, route_change};
