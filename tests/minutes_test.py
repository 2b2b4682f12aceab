#!/usr/bin/env python3
"""Rows of `make minutes` can be measured one by one: each makes what it needs first, and no more."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import minutes  # noqa: E402


class NoClone(minutes.Clone):
    """Runs nothing, and remembers what would run."""

    status = 0

    def __init__(self, folder, install=False):
        self.folder, self.install, self.done = pathlib.Path(folder), install, set()

    def revision(self):
        return "0"

    def spend(self, *command, **options):
        RAN.append(" ".join(map(str, command)))
        return minutes.Spent(1, 1, self.status)

    def leaf(self, folder):
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        (self.folder / folder / "leaf.cpp").write_text("")
        return self.folder / folder / "leaf.cpp"


RAN = []


class Rows(unittest.TestCase):
    def setUp(self):
        RAN.clear()
        self.addCleanup(setattr, minutes, "Clone", minutes.Clone)
        self.addCleanup(setattr, NoClone, "status", 0)
        minutes.Clone = NoClone

    def measured(self, *rows):
        """What is made for these rows."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            self.addCleanup(setattr, sys, "argv", sys.argv)
            sys.argv = ["minutes.py", "--record", f"{folder}/minutes.md", *(word for row in rows for word in ("--only", row))]
            minutes.main()
        return [command.split()[-1] for command in RAN if command.startswith("make ")]

    def test_a_row_makes_what_it_needs_alone(self):
        for row, made in {"train": ["train"], "test": ["train", "tested", "test"], "rest": ["tested", "ALL=1"],
                          "nothing": ["test", "test"], "header": ["tested"], "ci": []}.items():
            with self.subTest(row):
                RAN.clear()
                self.assertEqual(self.measured(row), made)

    def test_rows_share_what_they_need_in_whatever_order_they_are_named(self):
        self.assertEqual(self.measured("nothing", "test", "train"), ["train", "tested", "test", "test"])

    def test_nothing_is_measured_on_what_could_not_be_made(self):
        NoClone.status = 2
        with self.assertRaisesRegex(SystemExit, "make tested ended with 2"):
            self.measured("header")

    def test_figures_do_not_replace_their_page(self):
        self.addCleanup(setattr, sys, "argv", sys.argv)
        sys.argv = ["minutes.py", "--record", "minutes.json"]
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
            minutes.main()
        self.assertIn("--record minutes.json names the page", said.getvalue())

    def test_the_list_says_what_each_row_needs(self):
        said = io.StringIO()
        self.addCleanup(setattr, sys, "argv", sys.argv)
        sys.argv = ["minutes.py", "--list"]
        with contextlib.redirect_stdout(said):
            minutes.main()
        lines = said.getvalue().splitlines()
        self.assertEqual([line.split()[0] for line in lines], list(minutes.ROWS))
        for line, row in zip(lines, minutes.ROWS.values(), strict=True):
            self.assertEqual(f"Needs `make {row.needs}`" in line, bool(row.needs), line)


if __name__ == "__main__":
    unittest.main()
