"""Examples of the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
import unittest
from pathlib import Path

from support import CoupledTest

ROOT = Path(__file__).parents[2]
HOW_TO = "doc/how-to/couple-python.md"
TIMEOUT = 60.0
"""Maximum time of an example, seconds."""

MODEL = """
import numpy
import lfn.couple

level = numpy.zeros((64, 128))

def compute(own, other):
    return (own + other) / 2

"""


def examples(page: str, language: str) -> list[str]:
    """Returns the blocks of a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


class Examples(CoupledTest):
    def test_examples_are_valid_python(self) -> None:
        pages = ["python/README.md", HOW_TO]
        blocks = [(page, block) for page in pages for block in examples(page, "python")]
        self.assertGreater(len(blocks), 6)
        for page, block in blocks:
            compile(block, page, "exec")

    def test_models_of_the_guide_run(self) -> None:
        self.file(examples(HOW_TO, "toml")[0], "lake.toml")
        blocks = examples(HOW_TO, "python")
        (atmosphere,) = [block for block in blocks if "couple.dial(" in block]
        lakes = [block for block in blocks if "with lfn.couple.listen(" in block and "bmi" not in block]
        self.assertEqual(len(lakes), 3)
        for lake in lakes:
            with self.subTest(lake):
                local = lake.replace('"lake.toml", "lake"', '"lake.toml", "lake", address="127.0.0.1", port=0')
                self.assertNotEqual(local, lake)
                self.run_both(MODEL + local, MODEL + atmosphere)

    def run_both(self, lake: str, atmosphere: str) -> None:
        listens = self.start("lake.py", lake)
        ticket = next((found[1] for line in listens.stderr if (found := re.search(r"this ticket: (\S+)", line))), None)
        if ticket is None:
            self.fail("the lake printed no ticket")
        dials = self.start("atmosphere.py", atmosphere, ticket)
        for process in (listens, dials):
            _, errors = process.communicate(timeout=TIMEOUT)
            self.assertEqual(process.returncode, 0, errors)
            self.assertRegex(errors, r"lfn: step of lake +\S+ \S+ +\S+ \S+\n")

    def start(self, name: str, program: str, *arguments: str) -> subprocess.Popen[str]:
        (self.directory / name).write_text(program, encoding="utf-8")
        command = [sys.executable, name, *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=self.directory, stdout=pipe, stderr=pipe, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process


if __name__ == "__main__":
    unittest.main()
