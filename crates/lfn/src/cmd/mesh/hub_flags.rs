//! Flags of the hub, which `lfn mesh hub` and `lfn mesh up` share.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use lfn_api::mesh::hub::{CertificateFiles, HubStart, PageStart};
use lfn_api::mesh::{archive_file, hub_directory};

use crate::exit::Failure;

/// Port of the page.
const PAGE_PORT: u16 = 7380;

/// Flags of the hub.
#[derive(clap::Args, Debug)]
pub(super) struct HubFlags {
    /// Sites file, see `lfn mesh check`
    #[arg(value_name = "SITES")]
    pub sites: PathBuf,
    /// Store the results in FILE [default: archive.sqlite in the state directory]
    #[arg(long, value_name = "FILE", help_heading = "Hub")]
    pub archive: Option<PathBuf>,
    /// Keep the key and the secret of the hub in DIR [default: the state directory of the user]
    #[arg(long, value_name = "DIR", help_heading = "Hub")]
    pub hub_state: Option<PathBuf>,
    /// Listen for agents on this address only
    #[arg(long, value_name = "ADDRESS", help_heading = "Hub")]
    pub bind: Option<IpAddr>,
    /// Listen for agents on this port; 0 uses any free port [default: that of the sites file, or 7324]
    #[arg(long, value_name = "PORT", help_heading = "Hub")]
    pub port: Option<u16>,
    /// Serve the page on this address
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PAGE_PORT), help_heading = "Page")]
    pub page: SocketAddr,
    /// Serve the page over HTTPS with the certificate in FILE (PEM)
    #[arg(long, value_name = "FILE", requires = "page_key", help_heading = "Page")]
    pub page_certificate: Option<PathBuf>,
    /// Read the key of the certificate from FILE (PEM)
    #[arg(long, value_name = "FILE", requires = "page_certificate", help_heading = "Page")]
    pub page_key: Option<PathBuf>,
    /// Serve the page over HTTP on an address that other hosts can reach: they can read the token on the network
    #[arg(long, help_heading = "Page")]
    pub page_insecure: bool,
}

impl HubFlags {
    /// Returns the options of the hub.
    pub(super) fn options(&self) -> Result<HubStart, Failure> {
        let certificate = self.page_certificate.clone().zip(self.page_key.clone());
        Ok(HubStart {
            sites: self.sites.clone(),
            state: self.hub_state.clone().map_or_else(hub_directory, Ok)?,
            archive: match (&self.archive, &self.hub_state) {
                (Some(archive), _) => archive.clone(),
                (None, Some(state)) => state.join("archive.sqlite"),
                (None, None) => archive_file()?,
            },
            bind: self.bind,
            port: self.port,
            page: PageStart {
                address: self.page,
                certificate: certificate.map(|(chain, key)| CertificateFiles { chain, key }),
                insecure: self.page_insecure,
            },
        })
    }
}
