"""What the tests of commands share: calling the program, in a folder that is removed afterwards."""

import os
import pathlib
import re
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

from start_once import Commands  # noqa: E402

SLUICE = os.environ.get("SLUICE", "build/sluice")
# After which a command hangs. No test depends on how long a command takes; a busy machine may take long.
HANG_S = 1200
COMMANDS = Commands(SLUICE)
# Lines that commands say only while people wait for them.
NOTICE = re.compile(r"^(sluice: still .* after \d+ s|proposing .*)\n", re.MULTILINE)


def call(*arguments):
    """How a command ends and what it says, less the lines that depend on how long it took."""
    done = COMMANDS.run(arguments, os.getcwd(), dict(os.environ), HANG_S)
    done.stderr = NOTICE.sub("", done.stderr)
    return done


def a_worker(launcher):
    """A process that a supervisor of the launcher started; it may be killed."""
    def children(pid):
        path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
        return [int(child) for child in path.read_text().split()] if path.exists() else []
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        workers = [worker for supervisor in children(launcher) for worker in children(supervisor)]
        if workers:
            return workers[-1]
    raise AssertionError(f"the launcher {launcher} has no worker after {HANG_S} s")


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
