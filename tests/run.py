#!/usr/bin/env python3
"""Runs the tests of a build and says what ran: cases that passed and failed, and those that were skipped, with why.

    tests/run.py --build build [--jobs N] [-- ctest options]

A case is a test of GoogleTest's or unittest's, or a whole program of any other kind. What is skipped for want of something
that `tools/bootstrap --test` installs is a failure where $CI is set: there all that a machine can run has to run. What no
machine without a GPU, or without certain rights, can run is shown and stays a skip. Exit status: 0 all well; 1 otherwise.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import re
import subprocess
import sys

CURE = "tools/bootstrap"  # stands in each reason that it removes


@dataclasses.dataclass
class Count:
    """Of cases, and of reasons for which some were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def count_of_google_test(output):
    ran = re.search(r"^\[=+\] (\d+) tests? from .* ran\.", output, re.MULTILINE)
    failed = len(set(re.findall(r"^\[  FAILED  \] (\S+?)(?:, where .*)? \(\d+ ms\)$", output, re.MULTILINE)))
    # A skipped case's last words before its line: "FILE:LINE: Skipped", then the reason.
    skipped = collections.Counter()
    for case in re.findall(r"^\[ RUN      \] .*\n((?:(?!\[ RUN ).*\n)*?)\[  SKIPPED \] .* \(\d+ ms\)$", output, re.MULTILINE):
        lines = case.strip().splitlines()
        at = max((i for i, line in enumerate(lines) if line.endswith(": Skipped")), default=None)
        skipped[lines[at + 1] if at is not None and at + 1 < len(lines) else "no reason given"] += 1
    return Count(int(ran[1]) - failed - skipped.total(), failed, skipped)


def count_of_unittest(output):
    ran = sum(map(int, re.findall(r"^Ran (\d+) tests? in ", output, re.MULTILINE)))
    failed = sum(map(int, re.findall(r"(?:failures|errors)=(\d+)", output)))
    skipped = collections.Counter(re.findall(r"skipped (?:'|\")(.*)(?:'|\")$", output, re.MULTILINE))
    return Count(ran - failed - skipped.total(), failed, skipped)


def count_of(output, status):
    """Of one program of ctest's."""
    if re.search(r"^\[=+\] \d+ tests? from .* ran\.", output, re.MULTILINE):
        count = count_of_google_test(output)
    elif re.search(r"^Ran \d+ tests? in ", output, re.MULTILINE):
        count = count_of_unittest(output)
    else:  # it says itself what of it was skipped
        reasons = re.findall(r"^skipped: (.*)$", output, re.MULTILINE)
        if status == "Skipped" and not reasons:
            reasons = ["no reason given"]
        count = Count(int(status == "Passed"), int(status not in ("Passed", "Skipped")), collections.Counter(reasons))
    if status == "Failed" and count.failed == 0:
        count.failed = 1  # it crashed, or timed out
    return count


def read_log(text):
    """[name, status, output] of each test in ctest's LastTest.log."""
    tests = []
    for block in re.split(r"^\d+/\d+ Testing: ", text, flags=re.MULTILINE)[1:]:
        name = block.split("\n", 1)[0]
        output = block.split("Output:\n" + "-" * 58 + "\n", 1)[-1].split("\n<end of output>", 1)[0]
        status = re.findall(r"^Test (Pass|Failed|Skipped|Timeout)", block.split("<end of output>", 1)[-1], re.MULTILINE)
        tests.append((name, "Passed" if status[-1:] == ["Pass"] else (status or ["Failed"])[-1], output + "\n"))
    return tests


def told(total, by_machine, status):
    """The summary's lines; the last one counts."""
    lines = [f"skipped: {count} x {reason}" for reason, count in sorted(total.skipped.items())]
    if by_machine:
        lines.append(f"This machine could run {by_machine} of these: see the reasons; where $CI is set that is a failure.")
    failed = max(total.failed, 1 if status != 0 else 0)
    return [*lines, f"{total.passed} passed, {failed} failed, {total.skipped.total()} skipped"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processors; a test more runs at a time")
    parser.add_argument("ctest", nargs="*", help="options for ctest")
    arguments = parser.parse_args()
    # Many a test waits for silence to be noticed or a limit to pass: one more than there are processors keeps these busy.
    status = subprocess.run(["ctest", "--output-on-failure", "--no-tests=error", "--test-dir", arguments.build, "-j",
                             str(arguments.jobs + 1), *arguments.ctest], check=False).returncode
    total = Count()
    for _, of_program, output in read_log((arguments.build / "Testing/Temporary/LastTest.log").read_text(errors="replace")):
        total.add(count_of(output, of_program))
    by_machine = sum(count for reason, count in total.skipped.items() if CURE in reason)
    print("\n".join(told(total, by_machine, status)), flush=True)
    sys.exit(1 if status != 0 or total.failed or (by_machine and os.environ.get("CI")) else 0)


if __name__ == "__main__":
    main()
