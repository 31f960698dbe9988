//! Documents of `lfn token`.

use std::path::PathBuf;

use lfn_base::units::BitRate;
use serde::Serialize;

use super::schema_name::schema_name;

/// A new token with its ticket, schema `lfn.token/1`. The ticket is a secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TokenDocument {
    /// Name and version of the schema.
    pub schema: TokenSchema,
    /// Name of the token.
    pub name: String,
    /// Ticket for the client: lfn://TOKEN@HOST:PORT#FINGERPRINT.
    pub ticket: String,
}

/// Tokens without their secrets, schema `lfn.tokens/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TokensDocument {
    /// Name and version of the schema.
    pub schema: TokensSchema,
    /// Tokens in the order of their names.
    pub tokens: Vec<TokenEntry>,
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TokenEntry {
    /// Name of the token.
    pub name: String,
    /// Rights separated by commas: read, write, create and test.
    pub rights: String,
    /// Directory of its copies; null for the root of the server.
    pub root: Option<PathBuf>,
    /// Maximum rate of its sessions together; null without a limit.
    #[serde(rename = "rate_bits_per_second")]
    pub rate: Option<BitRate>,
    /// Time of creation: RFC 3339, UTC.
    pub created: String,
    /// Time of expiry: RFC 3339, UTC; null if the token is valid until it is revoked.
    pub expires: Option<String>,
    /// True if the token has expired.
    pub expired: bool,
}

/// A revoked token, schema `lfn.token.revoke/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TokenRevokedDocument {
    /// Name and version of the schema.
    pub schema: TokenRevokedSchema,
    /// Name of the token.
    pub name: String,
}

schema_name! {
    /// Name and version of the schema of a new token.
    TokenSchema = "lfn.token/1"
}
schema_name! {
    /// Name and version of the schema of the list of tokens.
    TokensSchema = "lfn.tokens/1"
}
schema_name! {
    /// Name and version of the schema of a revoked token.
    TokenRevokedSchema = "lfn.token.revoke/1"
}
