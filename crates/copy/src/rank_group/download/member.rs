//! One connected rank of a download.

use std::sync::Arc;

use lfn_session::wire::copy::SenderMessage;

use crate::rank_group::mailbox::Mailbox;
use crate::sender::ReceiverLink;
use crate::stream_set::StreamSet;

/// A rank while it is connected.
#[derive(Debug)]
pub(super) struct ReceivingMember {
    pub(super) link: ReceiverLink,
    pub(super) streams: Arc<StreamSet>,
    pub(super) mailbox: Arc<Mailbox<SenderMessage>>,
}

impl ReceivingMember {
    pub(super) fn new(link: ReceiverLink, streams: Arc<StreamSet>) -> Self {
        ReceivingMember { link, streams, mailbox: Arc::default() }
    }
}

impl AsRef<StreamSet> for ReceivingMember {
    fn as_ref(&self) -> &StreamSet {
        &self.streams
    }
}
