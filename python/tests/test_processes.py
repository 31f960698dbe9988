"""Components in two processes: killed, restarted and interrupted ones."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Callable
from pathlib import Path

from support import CoupledTest, coupling, variable

TIMEOUT = 90.0
"""Maximum time of a process, seconds."""

STEPS = 40
LAGGED = variable("level", "lake", lag=2) + variable("wind", "atmosphere", units="m s-1", lag=1)


class Component:
    """A running component, and the lines of its output."""

    def __init__(self, test: CoupledTest, model: str, file: Path, name: str) -> None:
        command = [sys.executable, str(Path(__file__).parent / "component.py"), model, str(file), name, str(test.directory)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.errors = ""
        self._readers = [threading.Thread(target=self._read_lines), threading.Thread(target=self._read_errors)]
        for reader in self._readers:
            reader.start()
        test.addCleanup(self.end)

    def wait_for(self, condition: Callable[[str], bool]) -> str:
        """Returns the first line for which the condition is true."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            found = next((line for line in list(self.lines) if condition(line)), None)
            if found is not None:
                return found
            if self.process.poll() is not None and not self._readers[0].is_alive():
                break
            time.sleep(0.01)
        raise AssertionError(f"no such line in {self.lines}; standard error: {self.errors}")

    def end(self) -> int:
        """Returns the exit code, after the end of the process. Kills a process that does not end."""
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for reader in self._readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.returncode

    def result(self) -> str:
        """Returns the result that a component prints at its end."""
        return self.wait_for(lambda line: line.startswith("result "))

    def _read_lines(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def _read_errors(self) -> None:
        self.errors = self.process.stderr.read()


class Processes(CoupledTest):
    def start(self, model: str, file: Path) -> tuple[Component, Component]:
        return Component(self, model, file, "lake"), Component(self, model, file, "atmosphere")

    def run_to_the_end(self, model: str, file: Path, killed: str | None) -> list[str]:
        """Returns the results of both components. One of them is killed during the run, and started again."""
        components = dict(zip(("lake", "atmosphere"), self.start(model, file), strict=True))
        if killed is not None:
            victim = components[killed]
            victim.wait_for(lambda line: line == "step 10")
            victim.process.send_signal(signal.SIGKILL)
            self.assertEqual(victim.end(), -signal.SIGKILL)
            components[killed] = Component(self, model, file, killed)
        for component in components.values():
            self.assertEqual(component.end(), 0, component.errors)
        reports = [json.loads(component.lines[-1])["report"] for component in components.values()]
        resumed = [report["measured"]["own"]["first_step"] > 0 for report in reports]
        self.assertEqual(resumed, [name == killed for name in components])
        if killed is not None:
            survivor = next(component for name, component in components.items() if name != killed)
            kinds = [line.split()[1] for line in survivor.lines if line.startswith("event ")]
            self.assertIn("lost:", kinds)
            self.assertIn("partner_resumed:", kinds)
            remarks = "\n".join(survivor.lines)
            self.assertRegex(remarks, r"\nconnection: \S+ \S+ without a connection, 1 reconnect\n")
        return [component.result() for component in components.values()]

    def test_killed_component_resumes_with_the_same_result(self) -> None:
        results = []
        for model, killed in (("sum", None), ("sum", "atmosphere"), ("sum", "lake"), ("run", "atmosphere")):
            with self.subTest(model=model, killed=killed):
                for path in self.directory.iterdir():
                    if path.is_file():
                        path.unlink()
                text = coupling(LAGGED, steps=STEPS, checkpoints=True)
                results.append(self.run_to_the_end(model, self.file(text), killed))
        self.assertEqual(results, [results[0]] * 4)

    def test_interrupt_ends_a_wait_and_stops_the_partner(self) -> None:
        text = coupling(variable("level", "lake"), variable("wind", "atmosphere"))
        lake, atmosphere = self.start("wait", self.file(text))
        lake.wait_for(lambda line: line == "step 0")
        atmosphere.wait_for(lambda line: line == "step 0")
        lake.process.send_signal(signal.SIGINT)
        self.assertEqual(lake.end(), -signal.SIGINT)
        self.assertIn("KeyboardInterrupt", lake.errors)
        # The channel of the lake has ended: the next call of the atmosphere fails.
        (self.directory / "go").touch()
        self.assertEqual(atmosphere.end(), 1)
        self.assertIn("PartnerStopped: lake stopped the run: interrupted", atmosphere.errors)

    def test_end_of_the_program_stops_the_partner(self) -> None:
        text = coupling(variable("level", "lake"), variable("wind", "atmosphere"))
        lake, atmosphere = self.start("leave", self.file(text))
        self.assertEqual(lake.end(), 0)
        (self.directory / "go").touch()
        self.assertEqual(atmosphere.end(), 1)
        self.assertIn("PartnerStopped: lake stopped the run: the program ended without finish()", atmosphere.errors)

    def test_interrupt_ends_the_wait_for_the_partner(self) -> None:
        lake = Component(self, "wait", self.file(coupling(LAGGED)), "lake")
        lake.wait_for(lambda line: line.startswith("event listening"))
        lake.process.send_signal(signal.SIGINT)
        self.assertEqual(lake.end(), -signal.SIGINT)
        self.assertIn("KeyboardInterrupt", lake.errors)


if __name__ == "__main__":
    unittest.main()
