//! The side that wants the bytes: each stream takes whatever block comes, checks it and writes it where it belongs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::{Digest, hash_block};
use lfn_core::transfer::intake::Intake;
use lfn_core::wire::copy::BlockHeader;

use super::TransferError;
use super::flow::{Activity, Flow, lock};
use super::place::{Destination, Partial};
use crate::session::DataStream;

/// Where the bytes go.
#[derive(Debug)]
pub(crate) enum Sink {
    File(Partial),
    Null,
}

/// One file being received.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) flow: Flow,
    layout: Layout,
    intake: Mutex<Intake>,
    /// For the streams: the partial file, and what to call it.
    file: Option<(Arc<File>, String)>,
    /// For whoever ends the copy, one way or the other.
    sink: Mutex<Option<Sink>>,
}

impl Sink {
    /// Opens the destination on a thread of its own: to reserve a large file's room may take a while.
    pub(crate) fn open_apart(
        destination: Option<Destination>,
        layout: Layout,
        flow: Flow,
    ) -> Result<JoinHandle<Result<Arc<Receiving>, TransferError>>, TransferError> {
        spawn("destination", move || {
            let sink = match destination {
                Some(destination) => Sink::File(Partial::create(destination, layout.bytes())?),
                None => Sink::Null,
            };
            Ok(Arc::new(Receiving::new(sink, layout, flow)))
        })
    }
}

impl Receiving {
    fn new(sink: Sink, layout: Layout, flow: Flow) -> Self {
        let file = match &sink {
            Sink::File(partial) => Some((partial.file(), partial.shown().to_owned())),
            Sink::Null => None,
        };
        let intake = Mutex::new(Intake::new(layout));
        Receiving { flow, layout, intake, file, sink: Mutex::new(Some(sink)) }
    }

    /// What the destination is called, if it is a file.
    pub(crate) fn shown(&self) -> Option<String> {
        self.file.as_ref().map(|(_, shown)| shown.clone())
    }

    /// Takes blocks from one stream until its sender closes it.
    pub(crate) fn run(&self, stream: DataStream) {
        self.flow.run(stream, |stream| {
            let largest = self.layout.block_size().min(self.layout.bytes());
            let mut buffer = vec![0; largest.0 as usize];
            while self.receive_block(stream, &mut buffer)? {}
            Ok(())
        });
    }

    /// The digest of what was received, once every block is in.
    pub(crate) fn digest(&self) -> Option<Digest> {
        lock(&self.intake).digest()
    }

    /// Gives the file its name, on a thread of its own: disks take their time.
    pub(crate) fn publish_apart(self: &Arc<Self>) -> Result<JoinHandle<Result<(), TransferError>>, TransferError> {
        let receiving = self.clone();
        spawn("publish", move || {
            let sink = lock(&receiving.sink).take();
            match sink {
                Some(Sink::File(partial)) => partial.publish(|| receiving.flow.is_stopped()),
                Some(Sink::Null) => Ok(()),
                None => Err(TransferError::Interrupted),
            }
        })
    }

    /// Ends the copy: the partial file is removed, whatever its streams are doing.
    pub(crate) fn discard(&self) {
        self.flow.cut();
        drop(lock(&self.sink).take());
    }

    fn receive_block(&self, stream: &mut DataStream, buffer: &mut [u8]) -> Result<bool, TransferError> {
        let mut header = [0; BlockHeader::LENGTH];
        if !self.flow.spend(Activity::Network, || self.flow.read_header(stream, &mut header))? {
            return Ok(false);
        }
        let header = BlockHeader::decode(&header)?;
        let block = lock(&self.intake).claim(&header)?;
        let payload = &mut buffer[..block.length as usize];
        self.flow.spend(Activity::Network, || self.flow.read_payload(stream, payload))?;
        let hash = self.flow.spend(Activity::Hash, || hash_block(&self.layout, block, payload));
        if let Some((file, shown)) = &self.file {
            let written = self.flow.spend(Activity::Disk, || file.write_all_at(payload, block.offset));
            written.map_err(|source| TransferError::File { doing: "write", path: shown.clone(), source })?;
        }
        lock(&self.intake).take(block, header.hash, hash)?;
        Ok(true)
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, TransferError> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned.map_err(|source| crate::session::SessionError::Io { peer: "the kernel", source }.into())
}
