"""A component in a process of its own: `component.py MODEL FILE (lake|atmosphere) DIRECTORY`.

The lake listens and writes its ticket to DIRECTORY/ticket. The atmosphere waits for this file, and dials. Each component adds up
the fields of its partner, and prints a line for each step.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy

import lfn.couple

TIMEOUT = 60.0
"""Seconds."""


def main() -> None:
    model, file, component, place = sys.argv[1:5]
    directory = Path(place)
    checkpoint = directory / f"{component}.npy"
    resume = checkpoint.exists()
    options = {"patience": TIMEOUT, "resume": resume, "on_event": print_event}
    if component == "lake":
        state = directory / "state"
        channel = lfn.couple.listen(file, component, address="127.0.0.1", port=0, state=state, **options)
    else:
        channel = lfn.couple.dial(file, component, read_ticket(directory / "ticket"), **options)
    with channel:
        {"sum": add, "wait": wait}[model](channel, checkpoint, resume)
    print(json.dumps({"report": channel.report}), flush=True)


def print_event(event: lfn.couple.Event) -> None:
    """Prints the event, and stores the ticket."""
    print(f"event {event.kind}: {event.text}", flush=True)
    if event.kind == "listening":
        ticket = Path(sys.argv[4]) / "ticket"
        ticket.with_suffix(".new").write_text(event.details["ticket"], encoding="utf-8")
        ticket.with_suffix(".new").rename(ticket)


def read_ticket(path: Path) -> str:
    """Waits for the ticket of the lake."""
    deadline = time.monotonic() + TIMEOUT
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no ticket in {path}")
        time.sleep(0.01)
    return path.read_text(encoding="utf-8")


def add(channel: lfn.couple.Channel, checkpoint: Path, resume: bool) -> None:
    """Adds the fields of the partner to the own field, and writes a checkpoint in each step."""
    (own,), (other,) = channel.sent.values(), channel.received.values()
    field = numpy.load(checkpoint) if resume else numpy.full(own.shape, 1.0)
    for step in channel:
        if step.number > channel.first_step:
            numpy.save(checkpoint.with_suffix(".new.npy"), field)
            checkpoint.with_suffix(".new.npy").rename(checkpoint)
            step.checkpoint()
        step.put(own.name, field)
        field = field + step.get(other.name) + 0.001 * step.number
        print(f"step {step.number}", flush=True)
        # The test kills a component during the run.
        time.sleep(0.02)
    print(f"result {field[0, 0]!r}", flush=True)


def wait(channel: lfn.couple.Channel, _checkpoint: Path, _resume: bool) -> None:
    """Waits for a field that never comes: the atmosphere puts nothing, and computes for long."""
    for step in channel:
        print(f"step {step.number}", flush=True)
        if channel.component == "lake":
            step.put("level", numpy.zeros((3, 4)))
            step.get("wind")
        else:
            time.sleep(TIMEOUT)


if __name__ == "__main__":
    main()
