#!/usr/bin/env python3
"""Each test of `make soak` names a script that exists and an option that it has: the soak itself takes two hours."""

import os
import pathlib
import subprocess
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS / "soak"))

import soak  # noqa: E402


class Scripts(unittest.TestCase):
    def test_each_exists_and_knows_its_options(self):
        for name, test in soak.ALL.items():
            if test.program[0] != sys.executable:
                continue
            with self.subTest(name):
                helped = subprocess.run([*test.program[:3], "--help"], text=True, capture_output=True, check=False,
                                        env=os.environ | {"SLUICE": "/no/program", "PLAN_INSTANCES": "/no/program"})
                self.assertEqual(helped.returncode, 0, helped.stderr)
                for option in [word for word in [*test.program[3:], test.flag] if word.startswith("--")]:
                    self.assertIn(option, helped.stdout)


if __name__ == "__main__":
    unittest.main()
