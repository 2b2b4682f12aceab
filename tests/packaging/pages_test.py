"""Manual pages and completions, which both follow the program's --help."""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

import manual_pages  # noqa: E402

SLUICE = pathlib.Path(os.environ.get("SLUICE", "build/sluice")).resolve()
HELP = """Says things
Usage: sluice say [OPTIONS] [text]

Options:
  -h,--help                   Print this help message and exit
  --loud TEXT:{no,yes}=no     How loud it is. A text that
                              goes on
  --a-name-that-is-longer-than-its-column INT
                              Explained below it

Subcommands:
  twice                       Says it twice
"""


class Pages(unittest.TestCase):
    def test_help_becomes_entries(self):
        found = manual_pages.sections(HELP)
        self.assertEqual(found["Options"][1], ["--loud TEXT:{no,yes}=no", "How loud it is. A text that goes on"])
        self.assertEqual(found["Options"][2], ["--a-name-that-is-longer-than-its-column INT", "Explained below it"])
        self.assertEqual(manual_pages.subcommands(HELP), ["twice"])

    def test_roff_takes_the_text_as_text(self):
        roff = manual_pages.page(("sluice", "say"), HELP.replace("How loud", ".so \\n"), "1.2", "2026-01-01")
        self.assertIn("\\&.so \\en it is", roff)
        self.assertIn("\\fBsluice\\-say\\-twice\\fR(1)", roff)

    def test_each_command_has_a_page_with_each_of_its_options(self):
        with tempfile.TemporaryDirectory() as name:
            prefix = pathlib.Path(name)
            count = manual_pages.install(SLUICE, prefix, "1.2", "2026-01-01")
            files = sorted((prefix / "share/man/man1").iterdir())
            self.assertEqual(len(files), count)
            self.assertIn("sluice-corpus-build.1.gz", [file.name for file in files])
            for words in (("train",), ("corpus", "build"), ("serve",)):
                page = gzip.decompress((prefix / f"share/man/man1/sluice-{'-'.join(words)}.1.gz").read_bytes()).decode()
                for option in re.findall(r"^  (?:-\w,)?(--[a-z-]+)", manual_pages.help_of(SLUICE, *words), re.M):
                    self.assertIn(option.replace("-", "\\-"), page)
            self.assertTrue((prefix / "share/bash-completion/completions/sluice").stat().st_size)
            if shutil.which("groff"):
                for file in files:
                    told = subprocess.run(["groff", "-Kutf8", "-man", "-Tutf8", "-ww", "-Wbreak", "-z"], input=gzip.decompress(file.read_bytes()),
                                          capture_output=True, check=True)
                    self.assertEqual(told.stderr, b"", file.name)


class Completion(unittest.TestCase):
    def complete(self, *words):
        """The words that bash would offer in place of the last one."""
        script = ('source <("$1" completion bash); shift; COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
                  '_sluice; printf "%s\\n" "${COMPREPLY[@]}"')
        told = subprocess.run(["bash", "-c", script, "bash", SLUICE, SLUICE, *words], capture_output=True, text=True, check=True)
        self.assertEqual(told.stderr, "")
        return told.stdout.split()

    def test_commands(self):
        self.assertEqual(self.complete("pro"), ["propose", "profile"])
        self.assertIn("build", self.complete("corpus", ""))
        self.assertIn("completion", self.complete("com"))

    def test_options_are_those_of_the_command_that_is_typed(self):
        self.assertEqual(self.complete("corpus", "build", "in.txt", "--del"), ["--delimiter"])
        self.assertIn("--nproc", self.complete("train", "--np"))
        self.assertIn("--json-key", self.complete("corpus", "build", "--json"))
        self.assertEqual(self.complete("lengths", "--nproc"), [])

    def test_options_with_a_few_values_offer_them(self):
        self.assertEqual(self.complete("corpus", "build", "--sanitize", ""), ["users", "all", "none"])
        self.assertEqual(self.complete("corpus", "build", "--sanitize", "a"), ["all"])

    def test_a_command_that_is_none_offers_commands_and_runs_nothing(self):
        self.assertIn("train", self.complete("--version", ""))
        self.assertEqual(self.complete("/bin/true", "xyz"), [])

    def test_an_unknown_shell_is_named_with_those_that_are_known(self):
        told = subprocess.run([SLUICE, "completion", "csh"], capture_output=True, text=True, check=False)
        self.assertEqual(told.returncode, 2)
        self.assertRegex(told.stderr, "csh.*bash.*fish.*zsh")

    def test_scripts_are_of_their_shells(self):
        for shell in ("bash", "zsh", "fish"):
            script = subprocess.run([SLUICE, "completion", shell], capture_output=True, text=True, check=True).stdout
            self.assertEqual(script, (ROOT / f"cli/completion/{shell}.sh").read_text())
            if shutil.which(shell):
                subprocess.run([shell, "-n"], input=script, text=True, check=True)


if __name__ == "__main__":
    unittest.main()
