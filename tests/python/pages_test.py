"""The Python on the pages: what the README shows is an example, and what docs/python.md shows runs."""

import contextlib
import io
import pathlib
import re
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


class PagesTest(unittest.TestCase):
    def blocks(self, page):
        return re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), flags=re.DOTALL)

    def test_the_readme_shows_the_example(self):
        for block in self.blocks("README.md"):
            self.assertIn(block, (REPOSITORY / "examples/megatron_data_loader.py").read_text())

    def test_the_pages_code_runs(self):
        for block in self.blocks("docs/python.md"):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(block.replace("bench/data", str(REPOSITORY / "bench/data")), {})
            self.assertTrue(printed.getvalue())


if __name__ == "__main__":
    unittest.main()
