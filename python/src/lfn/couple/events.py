"""Events of a channel."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """An event of a channel."""

    kind: str
    """`listening`, `connected`, `lost`, `waiting`, `partner_resumed`, `refused`, `clock_differs`, `not_a_number`,
    `history_full` or `partner_finished`."""
    text: str
    """The event as one line."""
    details: dict[str, Any] = field(default_factory=dict)
    """Values of the event, by name. Times are in seconds."""

    def __str__(self) -> str:
        return self.text


def print_event(event: Event) -> None:
    """Prints an event on standard error."""
    print(f"lfn: {event}", file=sys.stderr, flush=True)
