//! The two ends of a load and the names of their hosts.

use serde::{Deserialize, Serialize};

use crate::measure::TestDirection;

/// One of the two ends of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Client end of the test.
    Near,
    /// Server end of the test.
    Far,
}

/// Names of the two hosts as the user typed them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct HostNames {
    /// Name of the client, where the command runs.
    pub near: String,
    /// Name of the server.
    pub far: String,
}

/// A figure for each of the two ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PerEnd<T> {
    /// Figure of the client.
    pub near: T,
    /// Figure of the server.
    pub far: T,
}

impl Side {
    /// Returns the sender and the receiver of a direction.
    pub fn sender_and_receiver(direction: TestDirection) -> (Side, Side) {
        match direction {
            TestDirection::Forward => (Side::Near, Side::Far),
            TestDirection::Reverse => (Side::Far, Side::Near),
        }
    }
}

impl<T> PerEnd<T> {
    /// Returns the figure of one end.
    pub fn get(&self, side: Side) -> &T {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

impl HostNames {
    /// Returns the name of one host.
    pub fn name(&self, side: Side) -> &str {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

/// Returns the host of a name as typed, without the user of ssh and without the port.
pub(crate) fn host_of(name: &str) -> &str {
    let host = name.rsplit_once('@').map_or(name, |(_, host)| host);
    // A port follows the only colon of a name.
    host.split_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(host, _)| host)
}
