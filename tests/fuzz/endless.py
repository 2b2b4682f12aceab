"""A server of a model that never ends its texts, for what is sent to it by chance."""

import argparse
import contextlib
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))

from serve_bounds_test import endless_model  # noqa: E402
from serve_test import Server  # noqa: E402


def parser(count):
    """The arguments that all have: how many are sent, and the seed."""
    os.environ.setdefault("SLUICE", "build/sluice")
    made = argparse.ArgumentParser()
    made.add_argument("--count", type=int, default=count)
    made.add_argument("--seed", type=int, default=1)
    return made


@contextlib.contextmanager
def server(*arguments):
    """Running within the context; behind it `ended` is its exit status."""
    # Where a sanitizer's build is named, libtorch is not of it. What it frees comes back soon, as growth is looked for.
    os.environ.setdefault("ASAN_OPTIONS", "detect_container_overflow=0:detect_odr_violation=0:quarantine_size_mb=16")
    with tempfile.TemporaryDirectory() as folder:
        running = Server("--model", endless_model(pathlib.Path(folder) / "model"), *arguments)
        try:
            yield running
        finally:
            running.ended = running.close()
