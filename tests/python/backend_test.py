"""What `pip install ./python` tells while it compiles."""

import importlib.util
import io
import pathlib
import shutil
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
RULES = """
rule compile
  command = cp $in $out && true -c $in
build a.o: compile a.c
build folder/b.o: compile a.c
build other.o: compile a.c
build _sluice: phony a.o folder/b.o
"""


class Terminal(io.StringIO):
    """Says when something was written."""

    def __init__(self):
        super().__init__()
        self.written = threading.Event()

    def write(self, text):
        super().write(text)
        self.written.set()


@unittest.skipUnless(importlib.util.find_spec("scikit_build_core"), "scikit-build-core, which builds the package, is not here")
@unittest.skipUnless(shutil.which("ninja"), "ninja is not here")
class Backend(unittest.TestCase):
    def setUp(self):
        import repository
        self.repository = repository
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        (self.build / "a.c").touch()

    def test_files_of_the_package_are_counted_as_they_appear(self):
        self.assertEqual(self.repository.progress_line(self.build, 0), "", "CMake has not run")
        (self.build / "build.ninja").write_text(RULES)
        self.assertEqual(self.repository.files_of_target(self.build), 2)
        (self.build / "a.o").touch()
        self.assertRegex(self.repository.progress_line(self.build, 0), "sluice: 1 of 2 files compiled after [0-9]+ s")
        written_at = (self.build / "a.o").stat().st_mtime
        self.assertEqual(self.repository.progress_line(self.build, written_at + 2), "", "it was there before")

    def test_the_terminal_is_told_while_it_builds(self):
        (self.build / "build.ninja").write_text(RULES)
        terminal = Terminal()
        with self.repository.progress_on(terminal, self.build, every_s=0.01):
            (self.build / "a.o").touch()
            self.assertTrue(terminal.written.wait(60))
        self.assertIn("sluice: 1 of 2 files compiled", terminal.getvalue())

    def test_pip_finds_all_that_it_calls(self):
        for name in ("build_wheel", "build_editable", "build_sdist", "get_requires_for_build_wheel"):
            self.assertTrue(callable(getattr(self.repository, name)), name)


if __name__ == "__main__":
    unittest.main()
