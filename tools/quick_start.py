#!/usr/bin/env python3
"""Runs the quick start and shows where its minutes go: installs what is missing, compiles the program, makes the corpus,
trains.

    tools/quick_start.py MAKE [argument...]     as `make train` calls it

Each phase is a command of the Makefile. While files are compiled, a line says how many are done and about how long the rest
takes; training says the same of its steps. At the end stands how long each phase took.
"""

import re
import subprocess
import sys
import time

NINJA = re.compile(r"\[(\d+)/(\d+)\] ")
SAID_EVERY_S = 15  # where the output is no terminal


def duration(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


class Compilation:
    """Shows ninja's lines as one that says how far it is. Other lines (warnings, errors) are printed."""

    def __init__(self):
        self.begin = self.said = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.shown = False

    def take(self, line):
        step = NINJA.match(line)
        if not step:
            if line.strip() != "ninja: no work to do.":
                self.end_line()
                print(line, end="", flush=True)
            return
        done, total = map(int, step.groups())
        now = time.monotonic()
        if total < 3 or (not self.terminal and now - self.said < SAID_EVERY_S and done < total):
            return
        self.said, passed = now, now - self.begin
        left = f", about {duration(passed / done * (total - done))} left" if 5 <= done < total else ""
        text = f"  {done} of {total} compiled in {duration(passed)}{left}"
        print(f"\r{text:70s}" if self.terminal else text, end="" if self.terminal else "\n", file=sys.stderr, flush=True)
        self.shown = True

    def end_line(self):
        if self.terminal and self.shown:
            print(file=sys.stderr)
        self.shown = False


def compile_program(command):
    shown = Compilation()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stdout:
            shown.take(line)
    shown.end_line()
    return process.returncode


def call(command):
    return subprocess.run(command, check=False).returncode


def main():
    make = [*sys.argv[1:], "--no-print-directory", "-s"]
    phases = (("install", "what is missing: compilers and libraries of Debian's, libtorch", [*make, "bootstrap"], call),
              ("compile", "the program", [*make, "build"], compile_program),
              ("corpus", "of the Python standard library", [*make, "quick-start-corpus"], call),
              ("train", "examples/quickstart.toml on 4 ranks", [*make, "quick-start-run"], call))
    took = []
    for number, (name, what, command, run) in enumerate(phases, 1):
        print(f"[{number}/{len(phases)}] {name}: {what}", file=sys.stderr, flush=True)
        begin = time.monotonic()
        status = run(command)
        took.append((name, time.monotonic() - begin))
        if status != 0:
            sys.exit(f"make train: {name} ended with {status}")
    print(", ".join(f"{name} {duration(seconds)}" for name, seconds in took)
          + f": {duration(sum(seconds for _, seconds in took))} in all", file=sys.stderr)


if __name__ == "__main__":
    main()
