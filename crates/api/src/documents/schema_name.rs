//! Types of the `schema` keys.

/// Defines the type of a `schema` key: its only value is the name and the version of the schema.
macro_rules! schema_name {
    ($(#[$doc:meta])* $name:ident = $text:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub enum $name {
            #[default]
            #[serde(rename = $text)]
            Current,
        }
    };
}
pub(super) use schema_name;
