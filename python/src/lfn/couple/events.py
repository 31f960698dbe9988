"""Events of a channel."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """An event of a channel."""

    kind: str
    """`listening`, `not_connected`, `connected`, `lost`, `waiting`, `partner_resumed`, `refused`, `clock_differs`, `not_a_number`,
    `history_full`, `checkpoint_confirmed`, `partner_finished` or `result`."""
    text: str
    """The event as one line; `result` has several lines."""
    details: dict[str, Any] = field(default_factory=dict)
    """Values of the event, by name. Times are in seconds. `waiting` has the variable None after the last step."""

    def __str__(self) -> str:
        return self.text


def print_event(event: Event) -> None:
    """Prints an event on standard error."""
    # One write for all lines: the model prints on another thread.
    # A hint is its own label, as in the messages of the command.
    lines = (line if line.startswith("hint: ") else f"lfn: {line}" for line in event.text.splitlines())
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()
