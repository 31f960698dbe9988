//! Causes that a finding can name, with their names, their meaning and their consequences.

/// Causes that can limit a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The sender uses up the advertised receive window before acknowledgements return.
    ReceiveWindow,
    /// The send buffer is smaller than the bytes in flight that the path needs.
    SendBuffer,
    /// The kernel granted a smaller buffer than requested, or its autotuning ends below the need of the path.
    KernelCap,
    /// Window scaling is off, so no window is larger than 65,535 bytes.
    WindowScaleAbsent,
    /// One end has no CPU time left.
    Processor,
    /// The sending application has no data to send.
    SlowWriter,
    /// The receiving application does not read.
    SlowReader,
    /// The server limits the rate.
    ServerLimit,
    /// A host dropped packets itself, before it sent them or after it received them.
    LocalDrops,
    /// The path loses more packets than the goodput tolerates.
    Loss,
    /// Packets wait in a queue on the path.
    Queueing,
    /// Much of the sent data was sent more than once.
    Retransmissions,
    /// The path MTU is smaller than the MTU of both interfaces.
    SmallMtu,
    /// The congestion control in use is not the requested one, or does not fit the path.
    CongestionControl,
    /// The congestion window stays below the BDP of the path.
    CongestionWindow,
    /// Other traffic uses the interface of an end.
    Competing,
    /// Slow start took a large part of the load.
    StartUp,
    /// Datagrams arrived while the receiver's socket buffer was full.
    ReceiverOverflow,
    /// A sender of datagrams was late, or did not reach the requested rate.
    SlowSender,
    /// The source is read slower than the path carries data.
    SourceDisk,
    /// The destination is written slower than the path carries data.
    DestinationDisk,
    /// The connection was lost for a part of the time.
    LostConnection,
    /// Nothing arrived for a part of the time, and the connection survived.
    Outage,
    /// Each block waits for the acknowledgement of the block before.
    LockStep,
    /// The sender waits for delayed acknowledgements.
    DelayedAck,
    /// Slow start ended without a loss, far below the capacity.
    EarlyExit,
    /// The end of slow start overflowed a queue.
    Overshoot,
    /// The path loses single packets while no queue is full.
    RandomLoss,
    /// The path loses several packets at once.
    LossBursts,
    /// The sender waits for retransmission timeouts.
    Timeouts,
    /// The queue of the bottleneck is much shorter than the BDP.
    ShortQueue,
    /// A token bucket with a queue limits the rate.
    Shaper,
    /// A token bucket without a queue limits the rate.
    Policer,
    /// Packets arrive in another order than sent.
    Reordering,
    /// The network delivers packets twice.
    Duplicates,
    /// The receiver stopped answering.
    SilentPeer,
    /// Large packets vanish without a message.
    BlackHole,
    /// Acknowledgements are lost or delayed on their way.
    ReturnPath,
    /// The path marks packets instead of dropping them.
    EcnMarks,
    /// The path clears the ECN field.
    EcnBleached,
    /// Another host answers for the receiver.
    Proxy,
    /// The delay changes from packet to packet.
    Jitter,
    /// Values of a route or of earlier connections limit a new connection.
    RouteMetrics,
    /// The link of a host is slower than the path.
    LinkRate,
    /// The link of a host is in half duplex.
    HalfDuplex,
    /// Other traffic fills a queue of the path.
    SharedPath,
    /// The load has too many or too few streams.
    StreamCount,
    /// A host has too little memory for the buffers of TCP.
    Memory,
    /// Packets stand in the capture twice.
    CapturedTwice,
    /// The capture lacks packets that were on the path.
    IncompleteCapture,
    /// The lag of a variable of a coupled run is too small.
    ShortLag,
    /// A component of a coupled run is slower than its partner.
    LoadImbalance,
    /// A model computes longer or shorter than the coupling file has.
    ComputeTime,
    /// The RTT differs from the coupling file.
    PathDelay,
    /// Fields of a coupled run arrive later than the coupling file explains.
    LateFields,
    /// Newer fields replaced older ones before they were used.
    DroppedFields,
    /// Fields have elements that are not a number.
    NotANumber,
    /// The goodput is below the prediction, or a run differs from its plan, and no rule explains this.
    Unexplained,
}

/// Names and meaning of a cause.
pub struct CauseEntry {
    /// Cause that this entry describes.
    pub cause: Cause,
    /// Name that is printed and stored.
    pub name: &'static str,
    /// The cause as the object of "limited by".
    pub phrase: &'static str,
    /// Meaning in one sentence.
    pub meaning: &'static str,
}

const fn entry(cause: Cause, name: &'static str, phrase: &'static str, meaning: &'static str) -> CauseEntry {
    CauseEntry { cause, name, phrase, meaning }
}

/// All causes, in the order of [`Cause`].
pub const CAUSES: [CauseEntry; 58] = [
    entry(
        Cause::ReceiveWindow,
        "receive window",
        "the receive window",
        "the sender uses up the receive window before acknowledgements return",
    ),
    entry(
        Cause::SendBuffer,
        "send buffer",
        "the send buffer",
        "the send buffer holds less data than the path has in flight",
    ),
    entry(
        Cause::KernelCap,
        "kernel buffer limit",
        "a buffer limit of the kernel",
        "a sysctl limits a requested buffer or autotuning",
    ),
    entry(
        Cause::WindowScaleAbsent,
        "no window scaling",
        "the missing window scaling",
        "without window scaling no window is larger than 65,535 bytes",
    ),
    entry(Cause::Processor, "CPU-bound", "the CPU", "a thread or a CPU has no time left"),
    entry(
        Cause::SlowWriter,
        "slow sending application",
        "the sending application",
        "the sending application has no data to send, and its threads are idle",
    ),
    entry(
        Cause::SlowReader,
        "slow receiving application",
        "the receiving application",
        "the receiving application does not read, and its threads are idle",
    ),
    entry(Cause::ServerLimit, "limited by the server", "the rate limit of the server", "the server limits the rate"),
    entry(
        Cause::LocalDrops,
        "local drops",
        "packet drops in a host",
        "a host drops packets before it sends them or after it receives them",
    ),
    entry(Cause::Loss, "loss", "loss on the path", "the path loses more packets than the goodput tolerates"),
    entry(Cause::Queueing, "queueing", "a standing queue", "packets wait in a queue; a queue costs time, not goodput"),
    entry(
        Cause::Retransmissions,
        "retransmissions",
        "retransmissions",
        "much of the data is sent more than once, and loss is not the limit",
    ),
    entry(
        Cause::SmallMtu,
        "small MTU",
        "a small path MTU",
        "the path carries smaller packets than the interfaces of both ends",
    ),
    entry(
        Cause::CongestionControl,
        "congestion control",
        "the congestion control",
        "the congestion control in use is not the requested one, or does not fit the path",
    ),
    entry(
        Cause::CongestionWindow,
        "congestion window",
        "the congestion window",
        "the congestion window stays below the BDP of the path",
    ),
    entry(Cause::Competing, "competing traffic", "other traffic", "other traffic uses the interface of an end"),
    entry(Cause::StartUp, "slow start", "slow start", "slow start takes a large part of the time"),
    entry(
        Cause::ReceiverOverflow,
        "receiver overflow",
        "the receive buffer",
        "datagrams arrive while the receive buffer is full",
    ),
    entry(
        Cause::SlowSender,
        "slow sender",
        "the sender",
        "the sender of datagrams is late or does not reach the requested rate",
    ),
    entry(Cause::SourceDisk, "source disk", "the source disk", "the source is read slower than the path carries data"),
    entry(
        Cause::DestinationDisk,
        "destination disk",
        "the destination disk",
        "the destination is written slower than the path carries data",
    ),
    entry(
        Cause::LostConnection,
        "lost connection",
        "a lost connection",
        "the connection is lost for a part of the time",
    ),
    entry(Cause::Outage, "outage", "an outage", "nothing arrives for a part of the time, and the connection survives"),
    entry(
        Cause::LockStep,
        "lock-step",
        "an application in lock-step",
        "each block is sent only after the acknowledgement or the answer to the block before",
    ),
    entry(
        Cause::DelayedAck,
        "delayed-ACK stall",
        "delayed acknowledgements",
        "the sender waits for acknowledgements that the receiver delays",
    ),
    entry(
        Cause::EarlyExit,
        "early slow-start exit",
        "an early end of slow start",
        "slow start ends without a loss, far below the bytes in flight that the path carries",
    ),
    entry(
        Cause::Overshoot,
        "slow-start overshoot",
        "the overshoot of slow start",
        "the end of slow start overflows a queue, and the losses take long to repair",
    ),
    entry(
        Cause::RandomLoss,
        "random loss",
        "random loss on the path",
        "the path loses single packets while no queue is full",
    ),
    entry(
        Cause::LossBursts,
        "loss bursts",
        "loss bursts on the path",
        "the path loses several packets at once while no queue is full",
    ),
    entry(Cause::Timeouts, "timeouts", "retransmission timeouts", "the sender waits for retransmission timeouts"),
    entry(
        Cause::ShortQueue,
        "short queue",
        "a short queue",
        "the queue of the bottleneck overflows long before the path is full for a round trip",
    ),
    entry(Cause::Shaper, "shaper", "a shaper", "a shaper delays packets above its rate"),
    entry(Cause::Policer, "policer", "a policer", "a policer drops packets above its rate"),
    entry(
        Cause::Reordering,
        "reordering",
        "reordering on the path",
        "packets arrive after packets that were sent later",
    ),
    entry(Cause::Duplicates, "duplicate delivery", "duplicate delivery", "the network delivers packets twice"),
    entry(Cause::SilentPeer, "silent peer", "a silent peer", "the receiver stops answering"),
    entry(
        Cause::BlackHole,
        "MTU black hole",
        "an MTU black hole",
        "large packets vanish without a message, and small ones arrive",
    ),
    entry(Cause::ReturnPath, "return path", "the return path", "acknowledgements are lost, or wait in a queue"),
    entry(Cause::EcnMarks, "ECN marks", "ECN marks", "the path marks packets with congestion experienced (ECN)"),
    entry(
        Cause::EcnBleached,
        "ECN bleached",
        "cleared ECN fields",
        "the path clears the ECN field, so that marks are lost",
    ),
    entry(Cause::Proxy, "proxy", "a proxy in the path", "another host on the path answers for the receiver"),
    entry(Cause::Jitter, "jitter", "jitter", "the delay of the path changes from packet to packet"),
    entry(
        Cause::RouteMetrics,
        "stale route metrics",
        "stored route metrics",
        "a value of the route or of earlier connections limits a new connection",
    ),
    entry(Cause::LinkRate, "link rate", "the link of a host", "the link of a host is slower than the path"),
    entry(Cause::HalfDuplex, "half duplex", "a half-duplex link", "the link of a host carries one direction at a time"),
    entry(
        Cause::SharedPath,
        "competing traffic on the path",
        "other traffic on the path",
        "other traffic fills the queue of the bottleneck",
    ),
    entry(
        Cause::StreamCount,
        "stream count",
        "the number of streams",
        "the streams are too many for the windows of the path, or too few for its loss",
    ),
    entry(Cause::Memory, "memory", "the memory of a host", "a host has too little memory for the buffers of TCP"),
    entry(
        Cause::CapturedTwice,
        "captured twice",
        "packets that were captured twice",
        "the capture has each packet twice",
    ),
    entry(
        Cause::IncompleteCapture,
        "incomplete capture",
        "an incomplete capture",
        "the capture lacks packets that were on the path",
    ),
    entry(
        Cause::ShortLag,
        "short lag",
        "a lag that is too small",
        "a step waits for a field, because the lag of the variable is too small for the delay of the path",
    ),
    entry(
        Cause::LoadImbalance,
        "load imbalance",
        "the slower component",
        "a component waits until its slower partner begins the step that puts the fields, with any lag",
    ),
    entry(
        Cause::ComputeTime,
        "compute time",
        "the compute time of a model",
        "a model computes longer or shorter than the coupling file has",
    ),
    entry(
        Cause::PathDelay,
        "path delay",
        "the delay of the path",
        "the RTT of the path differs from the coupling file",
    ),
    entry(
        Cause::LateFields,
        "late fields",
        "late fields",
        "fields arrive later than the RTT of the path and the rate in the coupling file explain, or puts wait",
    ),
    entry(
        Cause::DroppedFields,
        "dropped fields",
        "dropped fields",
        "newer fields replace older ones of a variable with drop = \"oldest\"",
    ),
    entry(
        Cause::NotANumber,
        "not a number",
        "elements that are not a number",
        "fields have elements that are not a number; the channel passes them on",
    ),
    entry(
        Cause::Unexplained,
        "unexplained",
        "an unknown cause",
        "the goodput is below the prediction, or a coupled run differs from its plan, and no rule explains this",
    ),
];

impl Cause {
    fn entry(self) -> &'static CauseEntry {
        &CAUSES[self as usize]
    }

    /// Returns the name that is printed and stored.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Returns the cause with this name.
    pub fn from_name(name: &str) -> Option<Cause> {
        CAUSES.iter().find(|entry| entry.name == name).map(|entry| entry.cause)
    }

    /// Returns the cause as the object of "limited by".
    pub fn phrase(self) -> &'static str {
        self.entry().phrase
    }

    /// Returns true for the causes that limit only copies.
    pub fn is_disk(self) -> bool {
        matches!(self, Cause::SourceDisk | Cause::DestinationDisk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_cause_at_its_place() {
        for (number, entry) in CAUSES.iter().enumerate() {
            assert_eq!(entry.cause as usize, number, "{}", entry.name);
            assert_eq!(Cause::from_name(entry.name), Some(entry.cause));
        }
        assert_eq!(Cause::Unexplained as usize + 1, CAUSES.len());
    }
}
