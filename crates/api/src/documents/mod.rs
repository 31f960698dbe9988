//! Result documents of the commands, which `--json` prints and `--report` stores.
//!
//! Each document has the key `schema` with its name and version. `doc/schema` has the JSON Schema of each document,
//! generated from these types. The documents of tests are in [`lfn_results::report`] and [`lfn_measure::proto::stamp`], and those
//! of coupled runs in [`lfn_couple::document`].

mod clean;
mod coop3d;
mod copy;
mod demo;
mod dry_run;
mod emulate;
mod hosts;
mod mesh;
mod mesh_check;
mod mesh_log;
mod mesh_plan;
mod packet_log;
mod plan;
mod program;
#[cfg(test)]
mod schema;
mod schema_name;
mod serve;
#[cfg(test)]
mod server_log;
mod stripe;
mod tokens;
mod trace;
mod verify;

pub use clean::{CleanDocument, CleanLine, CleanSchema};
pub use coop3d::{Coop3dDocument, Coop3dRun, Coop3dSchema, CoupledModel, FileCoupling};
pub(crate) use copy::congestion_change;
pub use copy::{
    CopyDocument, CopyLine, CopyProgressFigures, CopyProgressLine, CopySchema, FailedCopy, FinishedCopy, QueueReport,
    RankDirection, RanksReport,
};
pub use lfn_couple::document::{CouplePlanDocument, CoupleRunDocument, LagPoint, StepFigure};

pub use demo::{DemoDocument, DemoFigure, DemoResults, DemoRow, DemoSchema, HostComparison, RateSpread, WindowPoint};
pub use dry_run::{
    DryRunDocument, DryRunSchema, ModelledTransfer, PredictedTransfer, QueueingDelayFigures, SenderCounts,
    SimulatedDirection,
};
pub use emulate::{
    BuiltInProfile, BuiltInTraceEntry, DirectionCapacity, EmulateDocument, EmulateListDocument, EmulateListSchema,
    EmulateSchema, EmulateShowDocument, EmulateShowSchema,
};
pub use hosts::{
    HostAddedDocument, HostAddedSchema, HostRemovedDocument, HostRemovedSchema, HostsDocument, HostsSchema,
};
pub use mesh::{
    AgentDocument, AgentSchema, AgentTicketDocument, AgentTicketSchema, BackupDocument, BackupSchema, HubDocument,
    HubSchema,
};
pub use mesh_check::{
    CheckedAudience, CheckedBottleneck, CheckedCircuit, ListedContact, ListedProblem, MeshCheckDocument,
    MeshCheckSchema, MeshCounts, UpcomingWindow,
};
#[cfg(test)]
pub use mesh_log::ExportDocument;
pub use mesh_log::{ExportSchema, ImportDocument, ImportSchema, ImportedFile, LogDocument, LogSchema};
pub use mesh_plan::{
    ListedSlot, MeshPlanDocument, MeshPlanSchema, PackedInterval, ResourceUse, SiteBudget, TestWithoutSlots,
    UnplannedLoad,
};
pub use packet_log::{
    LoggedDirection, LoggedOutcome, PacketLogEnd, PacketLogLine, PacketLogSchema, PacketLogStart, PacketRecord,
};
pub use plan::{PlanDocument, PlannedHost};
pub use program::{
    DefaultKey, DefaultsDocument, DefaultsFile, DefaultsSchema, SetDefault, VersionDocument, VersionSchema,
};
pub use serve::{ServeDocument, ServeSchema};
#[cfg(test)]
pub use server_log::{LogLevel, LoggedGrant, LoggedRequest, LoggedSession, ServerLogEvent, ServerLogLine};
pub use stripe::{StripeFigures, StripeState, UsedTransport};
pub use tokens::{
    TokenDocument, TokenEntry, TokenRevokedDocument, TokenRevokedSchema, TokenSchema, TokensDocument, TokensSchema,
};
pub use trace::{
    CaptureCounts, CauseTotal, FlaggedPacketLine, LimitTotal, ProtocolCount, TraceDocument, TraceEvent,
    TraceEventSchema, TraceSchema, TraceTotals, TracedConnection, TracedFile, TracedMptcp, TracedSubflow,
};
pub use verify::{FileDifference, FileStatus, VerifyCounts, VerifyDocument, VerifyLine, VerifySchema};
