"""What pages show of commands is what the commands print: a block behind the mark <!--printed by: COMMANDS--> holds lines
of their output, in order. Commands run one after the other, with bench/ and data/ at hand."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from commands import SLUICE

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MARK = re.compile(r"<!--printed by: (.*?)-->\n+```[a-z]*\n(.*?)```", re.DOTALL)


class Pages(unittest.TestCase):
    def test_blocks_are_what_commands_print(self):
        program = pathlib.Path(SLUICE).resolve()
        for page in sorted((ROOT / "docs").glob("*.md")):
            for commands, block in MARK.findall(page.read_text()):
                with self.subTest(page=page.name, commands=commands), tempfile.TemporaryDirectory() as folder:
                    for name in ("bench", "data"):
                        os.symlink(ROOT / name, pathlib.Path(folder) / name)
                    script = " ".join(commands.split()).replace("sluice ", f"{program} ")
                    done = subprocess.run(script, shell=True, cwd=folder, text=True, capture_output=True, check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    printed = iter(done.stdout.splitlines())
                    for line in block.splitlines():
                        self.assertIn(line, printed, f"{page.name} shows a line that is not printed, or not in this order")

    def test_renamed_names_are_those_of_the_table(self):
        printed = subprocess.run([SLUICE, "keys", "renamed"], text=True, capture_output=True, check=True).stdout
        self.assertEqual(printed, (ROOT / "docs" / "renamed.md").read_text(), "`sluice keys renamed` prints docs/renamed.md")


if __name__ == "__main__":
    unittest.main()
