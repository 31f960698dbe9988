"""A component in a process of its own: `component.py MODEL FILE (lake|atmosphere) DIRECTORY`.

The lake listens and writes its ticket to DIRECTORY/ticket. The atmosphere waits for this file, and dials. Each component adds up
the fields of its partner, and prints a line for each step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy

import lfn.couple

TIMEOUT = 60.0
"""Maximum time of a process, seconds."""


def main() -> None:
    # A shell starts programs in the background with SIGINT ignored, and Python then keeps this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    model, file, component, place = sys.argv[1:5]
    directory = Path(place)
    checkpoint = directory / f"{component}.npy"
    resume = checkpoint.exists()
    options = {"patience": TIMEOUT, "resume": resume, "on_event": print_event}
    if component == "lake":
        state = directory / "state"
        # The port after a restart is the port of the ticket that the atmosphere has.
        ticket = directory / "ticket"
        port = int(ticket.read_text(encoding="utf-8").split("#")[0].rsplit(":", 1)[1]) if resume else 0
        channel = lfn.couple.listen(file, component, address="127.0.0.1", port=port, state=state, **options)
    else:
        channel = lfn.couple.dial(file, component, wait_for(directory / "ticket"), **options)
    if model == "leave" and component == "lake":
        # Without a block, the end of the program stops the run.
        say(f"leaves {next(iter(channel))}")
        return
    with channel:
        {"sum": add, "run": add_by_function, "wait": wait, "leave": wait}[model](channel, checkpoint, resume)
    say(json.dumps({"report": channel.report}))


def print_event(event: lfn.couple.Event) -> None:
    """Prints the event, and stores the ticket."""
    say(f"event {event.kind}: {event.text}")
    if event.kind == "listening":
        ticket = Path(sys.argv[4]) / "ticket"
        ticket.with_suffix(".new").write_text(event.details["ticket"], encoding="utf-8")
        ticket.with_suffix(".new").rename(ticket)


def say(line: str) -> None:
    """Prints a line with one write: events come from another thread."""
    os.write(1, f"{line}\n".encode())


def wait_for(path: Path) -> str:
    """Waits for a file, and returns its text."""
    deadline = time.monotonic() + TIMEOUT
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no file {path}")
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
        say(f"step {step.number}")
        # The test kills a component during the run.
        time.sleep(0.02)
    say(f"result {field[0, 0]!r}")


def add_by_function(channel: lfn.couple.Channel, checkpoint: Path, resume: bool) -> None:
    """Computes as `add`, as a function of one step."""
    (own,), (other,) = channel.sent.values(), channel.received.values()
    field = numpy.load(checkpoint) if resume else numpy.full(own.shape, 1.0)

    def save(_number: int, fields: lfn.couple.Outputs) -> None:
        numpy.save(checkpoint.with_suffix(".new.npy"), fields[own.name])
        checkpoint.with_suffix(".new.npy").rename(checkpoint)

    def compute(step: lfn.couple.Step, inputs: lfn.couple.Inputs) -> lfn.couple.Outputs:
        nonlocal field
        field = field + inputs[other.name] + 0.001 * step.number
        say(f"step {step.number}")
        time.sleep(0.02)
        return {own.name: field}

    last = lfn.couple.run(channel, compute, {own.name: field}, save=save, every=3)
    say(f"result {last[own.name][0, 0]!r}")


def wait(channel: lfn.couple.Channel, checkpoint: Path, _resume: bool) -> None:
    """Waits for a field that never comes: the atmosphere computes until the file DIRECTORY/go exists."""
    for step in channel:
        say(f"step {step.number}")
        if channel.component == "lake":
            step.put("level", numpy.zeros((3, 4)))
            step.get("wind")
        else:
            wait_for(checkpoint.with_name("go"))
            step.put("wind", numpy.zeros((3, 4)))


if __name__ == "__main__":
    main()
