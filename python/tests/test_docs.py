"""Examples of the documentation."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Examples(unittest.TestCase):
    def test_examples_are_valid_python(self) -> None:
        count = 0
        for page in ("python/README.md", "doc/how-to/couple-python.md", "doc/reference/couple-python.md"):
            text = (ROOT / page).read_text(encoding="utf-8")
            for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
                compile(example, page, "exec")
                count += 1
        self.assertGreater(count, 5)


if __name__ == "__main__":
    unittest.main()
