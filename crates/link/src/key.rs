//! Description of a setting: the texts that flags, help, hints and the reference have in common.

/// One setting of a link.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name in a flag, a profile and a link specification.
    pub name: &'static str,
    /// Names for one direction: near to far, far to near.
    pub one_way: [&'static str; 2],
    /// Placeholder of the value in a help text.
    pub value: &'static str,
    /// Value that is accepted.
    pub example: &'static str,
    pub group: Group,
    /// False for a setting of the round trip, which cannot be set for one direction.
    pub has_direction: bool,
    /// Help of the flag, one line.
    pub help: &'static str,
    /// Meaning in the reference, in Markdown.
    pub meaning: &'static str,
    /// Words that occur in a value, for hints.
    pub words: &'static [&'static str],
}

/// Topic of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Rate,
    Delay,
    Loss,
}

impl Group {
    /// Returns the heading of the group.
    pub fn title(self) -> &'static str {
        match self {
            Group::Rate => "Rate and queue",
            Group::Delay => "Delay and order",
            Group::Loss => "Loss and faults",
        }
    }
}

/// Creates the [`Key`] of a setting for both directions and for each, from its group, name, placeholder, example, help
/// and meaning.
macro_rules! key {
    ($group:ident, $name:literal, $value:literal, $example:literal, $help:literal, $meaning:literal) => {
        $crate::key::Key {
            name: $name,
            one_way: [concat!("forward-", $name), concat!("return-", $name)],
            value: $value,
            example: $example,
            group: $crate::key::Group::$group,
            has_direction: true,
            help: $help,
            meaning: $meaning,
            words: &[],
        }
    };
}

pub(super) use key;
