"""What the tests of commands share: calling the program, in a folder that is removed afterwards."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SLUICE = os.environ.get("SLUICE", "build/sluice")


def call(*arguments):
    return subprocess.run([SLUICE, *map(str, arguments)], capture_output=True, text=True, timeout=300)


class CommandTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)

    @classmethod
    def done(cls, *arguments):
        """What the command prints; it must succeed."""
        result = call(*arguments)
        if result.returncode != 0:
            raise AssertionError(f"{arguments} ended with {result.returncode}: {result.stderr}")
        return result.stdout
