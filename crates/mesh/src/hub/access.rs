//! Tokens of agents and pairs. All of them follow from one secret of the hub, so that nothing else must be stored.

use data_encoding::HEXLOWER;
use lfn_session::Token;
use lfn_session::server::tokens::file::MAX_TOKENS;

use crate::sites::limits::MAX_ITEMS;

const CONTEXT: &str = "lfn 2026-11-28 tokens of a mesh v1";

/// Each host of the largest sites file has a token in the token file of the hub.
const _: () = assert!(MAX_ITEMS <= MAX_TOKENS);

/// Prefix of the token's name of an agent, in the token file of the hub.
const AGENT: &str = "agent:";

/// Prefix of the token's name of a client, in the token file of an agent.
const CLIENT: &str = "mesh:";

/// Secret of a hub.
#[derive(Clone)]
pub struct MeshSecret([u8; 32]);

impl std::fmt::Debug for MeshSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MeshSecret(..)")
    }
}

impl MeshSecret {
    /// Creates the secret from random bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        MeshSecret(bytes)
    }

    /// Parses the hexadecimal form; `None` for other texts.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = HEXLOWER.decode(text.trim().as_bytes()).ok()?;
        bytes.try_into().ok().map(MeshSecret)
    }

    /// Returns the hexadecimal form, for the file of the secret.
    pub fn to_text(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// Returns the token with which an agent dials the hub.
    pub fn agent_token(&self, host: &str) -> Token {
        self.token(&["agent", host])
    }

    /// Returns the token with which one agent tests another one.
    pub fn pair_token(&self, client: &str, server: &str) -> Token {
        self.token(&["pair", client, server])
    }

    /// Returns the key of STAMP packets between agents, in hexadecimal.
    pub fn stamp_key(&self) -> String {
        HEXLOWER.encode(&self.derive(&["stamp"]))
    }

    fn token(&self, parts: &[&str]) -> Token {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.derive(parts)[..16]);
        Token::from_bytes(bytes)
    }

    /// Returns a keyed hash of the parts. No name contains a zero byte.
    fn derive(&self, parts: &[&str]) -> [u8; 32] {
        *blake3::keyed_hash(&blake3::derive_key(CONTEXT, &self.0), parts.join("\0").as_bytes()).as_bytes()
    }
}

/// Returns the name of an agent's token in the token file of the hub.
pub fn agent_token_name(host: &str) -> String {
    format!("{AGENT}{host}")
}

/// Returns the agent that a token of this name belongs to.
pub(super) fn agent_of_token(name: &str) -> Option<&str> {
    name.strip_prefix(AGENT)
}

/// Returns the name of a client's token in the token file of an agent.
pub fn client_token_name(host: &str) -> String {
    format!("{CLIENT}{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_by_host_and_direction() {
        let secret = MeshSecret::from_bytes([7; 32]);
        let tokens = [
            secret.agent_token("a"),
            secret.agent_token("b"),
            secret.pair_token("a", "b"),
            secret.pair_token("b", "a"),
            MeshSecret::from_bytes([8; 32]).agent_token("a"),
        ];
        for (place, token) in tokens.iter().enumerate() {
            assert!(tokens[place + 1..].iter().all(|other| !other.matches(token)), "{place}");
        }
        assert!(MeshSecret::parse(&secret.to_text()).unwrap().agent_token("a").matches(&tokens[0]));
        assert!(MeshSecret::parse("00").is_none() && MeshSecret::parse("").is_none());
        assert_eq!(agent_of_token(&agent_token_name("far1")), Some("far1"));
        assert_eq!(agent_of_token(&client_token_name("far1")), None);
    }
}
