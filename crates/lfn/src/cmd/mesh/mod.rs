//! `lfn mesh`: measures the paths between all sites by a schedule, keeps the log and shows it. One module for each command.

mod agent;
mod archive_flag;
mod backup;
mod check;
mod export;
mod hub;
mod hub_flags;
mod import;
mod log;
mod plan;
mod running;
mod ticket;
mod up;

use clap::Subcommand;

use crate::exit::{Exit, Failure};

/// Measure the path between every two sites, keep the log, and compare two days
#[derive(clap::Args, Debug)]
pub struct MeshArgs {
    #[command(subcommand)]
    action: MeshAction,
}

#[derive(Subcommand, Debug)]
enum MeshAction {
    Plan(Box<plan::MeshPlanArgs>),
    Check(Box<check::CheckArgs>),
    Up(Box<up::UpArgs>),
    Hub(Box<hub::HubArgs>),
    Ticket(Box<ticket::TicketArgs>),
    Agent(Box<agent::AgentArgs>),
    Log(Box<log::LogArgs>),
    Import(Box<import::ImportArgs>),
    Export(Box<export::ExportArgs>),
    Backup(Box<backup::BackupArgs>),
}

/// Runs one command of `lfn mesh` and returns its exit code.
pub fn run(args: MeshArgs) -> Result<Exit, Failure> {
    match args.action {
        MeshAction::Plan(args) => plan::run(*args),
        MeshAction::Check(args) => check::run(*args),
        MeshAction::Up(args) => up::run(*args),
        MeshAction::Hub(args) => hub::run(*args),
        MeshAction::Ticket(args) => ticket::run(*args),
        MeshAction::Agent(args) => agent::run(*args),
        MeshAction::Log(args) => log::run(*args),
        MeshAction::Import(args) => import::run(*args),
        MeshAction::Export(args) => export::run(*args),
        MeshAction::Backup(args) => backup::run(*args),
    }
}
