"""Pairs of components for the tests."""

from __future__ import annotations

import queue
import tempfile
import threading
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lfn.couple

PATIENCE = 60.0
"""Seconds. A test that needs a time-out sets a shorter one."""


def coupling(*variables: str, steps: int = 3, model_step: str | None = None, checkpoints: bool = False) -> str:
    """Returns a coupling file of the components `lake` and `atmosphere` on three grids."""
    model_step = "" if model_step is None else f'model_step = "{model_step}"\n'
    component = f'compute = "10ms"\ncheckpoints = {str(checkpoints).lower()}\n'
    return (
        f'[coupling]\nname = "test"\nsteps = {steps}\n{model_step}'
        '[path]\nrate = "155Mb/s"\nrtt = "539ms"\n'
        f"[component.atmosphere]\n{component}[component.lake]\n{component}"
        "[grid.line]\nshape = [5]\n[grid.surface]\nshape = [3, 4]\n[grid.volume]\nshape = [2, 3, 4]\n" + "".join(variables)
    )


def variable(
    name: str,
    source: str,
    *,
    grid: str = "surface",
    dtype: str = "float64",
    units: str = "m",
    lag: int = 0,
    drop: str | None = None,
) -> str:
    """Returns the table of a variable."""
    target = {"lake": "atmosphere", "atmosphere": "lake"}[source]
    rest = "initial = 0.0\n" if lag else ""
    rest += "" if drop is None else f'drop = "{drop}"\n'
    return (
        f'[variable.{name}]\nfrom = "{source}"\nto = "{target}"\ngrid = "{grid}"\ntype = "{dtype}"\n'
        f'units = "{units}"\nlag = {lag}\n{rest}'
    )


BOTH = variable("level", "lake") + variable("wind", "atmosphere", units="m s-1")
"""One variable in each direction, without a lag."""

Model = Callable[[lfn.couple.Channel], Any]


class Outcome:
    """The result of one component: its return value or its exception, its events and its report."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.events: list[lfn.couple.Event] = []
        self.report: dict[str, Any] | None = None


class CoupledTest(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def file(self, text: str, name: str = "test.toml") -> Path:
        """Writes a coupling file."""
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        return path

    def couple(
        self,
        text: str,
        lake: Model,
        atmosphere: Model,
        *,
        atmosphere_text: str | None = None,
        lake_options: dict[str, Any] | None = None,
        atmosphere_options: dict[str, Any] | None = None,
        change_ticket: Callable[[str], str] = lambda ticket: ticket,
    ) -> tuple[Outcome, Outcome]:
        """Runs both components on threads of this process: the lake listens, the atmosphere dials."""
        lake_file = self.file(text)
        atmosphere_file = lake_file if atmosphere_text is None else self.file(atmosphere_text, "atmosphere.toml")
        tickets: queue.Queue[str | None] = queue.Queue()
        outcomes = Outcome(), Outcome()

        def record(outcome: Outcome) -> Callable[[lfn.couple.Event], None]:
            def call(event: lfn.couple.Event) -> None:
                outcome.events.append(event)
                if event.kind == "listening":
                    tickets.put(event.details["ticket"])

            return call

        def listen() -> lfn.couple.Channel:
            options = {"patience": PATIENCE, "on_event": record(outcomes[0]), **(lake_options or {})}
            return lfn.couple.listen(lake_file, "lake", address="127.0.0.1", port=0, **options)

        def dial() -> lfn.couple.Channel:
            ticket = tickets.get(timeout=PATIENCE)
            if ticket is None:
                raise RuntimeError("the lake did not listen")
            options = {"patience": PATIENCE, "on_event": record(outcomes[1]), **(atmosphere_options or {})}
            return lfn.couple.dial(atmosphere_file, "atmosphere", change_ticket(ticket), **options)

        def run(open_channel: Callable[[], lfn.couple.Channel], model: Model, outcome: Outcome) -> None:
            try:
                with open_channel() as channel:
                    outcome.value = model(channel)
                outcome.report = channel.report
            except BaseException as error:  # noqa: BLE001 - the test looks at every outcome
                outcome.error = error
                # Without a ticket, the other end would wait.
                tickets.put(None)

        threads = [
            threading.Thread(target=run, args=(listen, lake, outcomes[0]), daemon=True),
            threading.Thread(target=run, args=(dial, atmosphere, outcomes[1]), daemon=True),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE)
            self.assertFalse(thread.is_alive(), "a component did not end")
        return outcomes

    def assert_finished(self, *outcomes: Outcome) -> None:
        """Raises the exception of a component that failed."""
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
            self.assertIsNotNone(outcome.report)
