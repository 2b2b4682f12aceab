"""The build backend of `pip install ./python`: scikit-build-core, run in the repository's root.

Pip hides what a backend prints, so the terminal itself is told how many files are compiled.
"""

import contextlib
import functools
import os
import pathlib
import subprocess
import sys
import threading
import time

import scikit_build_core.build as backend
from scikit_build_core.build import *  # noqa: F403  what pip calls

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build-wheel"  # pyproject.toml's build-dir
TARGET = "_sluice"
EVERY_S = 10.0

os.chdir(ROOT)


def files_of_target(build):
    """How many files the package is compiled from, as its rules say; 0 before CMake has written them."""
    try:
        commands = subprocess.run(["ninja", "-C", build, "-t", "commands", TARGET], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    return sum(" -c " in line for line in commands.stdout.splitlines()) if commands.returncode == 0 else 0


def compiled_since(build, begin_s):
    times = []
    for path in build.rglob("*.o"):
        with contextlib.suppress(FileNotFoundError):  # written anew just now
            times.append(path.stat().st_mtime)
    return sum(time_s >= begin_s for time_s in times)


def progress_line(build, begin_s):
    """ "sluice: 12 of 74 files compiled after 61 s"; nothing before the first."""
    done = compiled_since(build, begin_s - 1)  # clocks of file systems are coarse
    return f"sluice: {done} of {max(done, files_of_target(build))} files compiled after {time.time() - begin_s:.0f} s" if done else ""


@contextlib.contextmanager
def progress_on(terminal, build=BUILD, every_s=EVERY_S):
    """Writes a line now and then while the block runs."""
    begin_s, over = time.time(), threading.Event()

    def tell():
        while not over.wait(every_s):
            if line := progress_line(build, begin_s):
                terminal.write(f"\r\033[K{line}\n")
                terminal.flush()

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def open_terminal():
    """The terminal that pip runs in; stderr, which pip shows with -v, where there is none."""
    try:
        return open("/dev/tty", "w")
    except OSError:
        return contextlib.nullcontext(sys.stderr)


def with_progress(build):
    @functools.wraps(build)
    def built(*arguments, **named):
        with open_terminal() as terminal, progress_on(terminal):
            return build(*arguments, **named)

    return built


build_wheel = with_progress(backend.build_wheel)
build_editable = with_progress(backend.build_editable)
