"""Figures are recorded of a revision: bench/record.py in a small clone."""

import os
import pathlib
import runpy
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "# A page\n\n<!--printed by echo 41-->\nnothing yet\n<!--/-->\n"


class Pages(unittest.TestCase):
    def test_a_page_is_filled_or_written_by_a_command_or_listed_as_copied(self):
        record = runpy.run_path(str(ROOT / "bench/record.py"))
        pages = {path.stem: path.read_text() for path in (ROOT / "bench/results").glob("*.md")}
        without = {name for name, text in pages.items() if not record["MARK"].search(text)}
        self.assertEqual(without, set(record["COPIED"]) | set(record["WRITTEN"]))
        self.assertFalse(set(record["COPIED"]) & set(record["WRITTEN"]))


class Record(unittest.TestCase):
    build_status = 0

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.clone = pathlib.Path(temporary.name)
        for name in ("bench/record.py", "tests/integration/harness.py", "tests/dependencies.py", "tests/tensor_files.py"):
            (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.clone / name)
        for helper in (ROOT / "tests/integration").glob("*.py"):
            shutil.copy(helper, self.clone / "tests/integration" / helper.name)
        self.page = self.clone / "bench/results/page.md"
        self.page.parent.mkdir()
        self.page.write_text(PAGE)
        (self.clone / "program").write_text("1")
        (self.clone / ".gitignore").write_text("__pycache__/\n")
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-q", "-m", "one")

    def git(self, *arguments):
        subprocess.run(["git", "-C", self.clone, *arguments], check=True)

    def record(self):
        """Records the page; what would be built is in self.built."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "cmake")
            program.write_text(f'#!/bin/sh\necho "$@" >>{folder}/asked\nexit {self.build_status}\n')
            program.chmod(0o755)
            done = subprocess.run([sys.executable, "-B", self.clone / "bench/record.py", "page"], capture_output=True, text=True,
                                  check=False, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
            asked = pathlib.Path(folder, "asked")
            self.built = [line.split("--target ")[1] for line in asked.read_text().splitlines()] if asked.exists() else []
        return done

    def commit_page(self, command):
        self.page.write_text(PAGE.replace("echo 41", command))
        self.git("-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-q", "-a", "--allow-empty", "-m", "two")

    def test_what_a_command_runs_is_built_first(self):
        for command, targets in {"echo 41": [], "echo page_bench data 1": ["page_bench"],
                                 "mkdir -p a && echo one_bench two_bench": ["one_bench two_bench"],
                                 "echo sluice simulate": ["sluice"], "echo bench/page.py": ["sluice"]}.items():
            with self.subTest(command):
                self.commit_page(command)
                done = self.record()
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(self.built, targets)

    def test_nothing_is_recorded_of_what_could_not_be_built(self):
        self.commit_page("echo page_bench")
        self.build_status = 1
        self.assertNotEqual(self.record().returncode, 0)
        self.assertIn("nothing yet", self.page.read_text())

    def test_a_page_says_its_revision_and_may_be_made_again(self):
        for _ in range(2):  # the first one changes the page itself
            done = self.record()
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(self.page.read_text(), r"(?s)`echo 41`, at revision [0-9a-f]+, .*\n41\n")
        self.assertNotIn("dirty", self.page.read_text())

    def test_a_tree_with_changes_is_refused(self):
        for name in ("program", "another"):
            (self.clone / name).write_text("2")
            done = self.record()
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(name, done.stderr)
            self.assertIn("commit the changes", done.stderr)
            self.assertEqual(self.page.read_text(), PAGE)
            self.git("stash", "-q", "-u")


if __name__ == "__main__":
    unittest.main()
