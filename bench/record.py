#!/usr/bin/env python3
"""Makes pages of results anew: the text between <!--printed by COMMAND--> and <!--/--> of a page in bench/results becomes
the command's present output, behind a line that says on which revision, on which machine and when.

    bench/record.py PAGE…     steps, offload, fidelity, …; commands run in the repository, with build/ among the programs

Pages without such marks are written by a command of their own, or were copied by hand from what one printed (COPIED).

A page is written when its command has succeeded, whole or not at all, and only of a revision: a tree with changes is refused,
and programs that the command runs are built first, because those in build/ may be of an older one.
"""

import datetime
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from harness import hardware, recorded_revision  # noqa: E402

# Tables that people have put together from what a command printed, and the command.
COPIED = {"checkpoints": "make bench-saving", "device_layers": "bench/device_layers.py", "graph": "graph_bench",
          "hetu_planner": "lab/evaluation/hetu_planner.py", "prediction": "prediction_bench", "spared_lanes": "spared_lanes_bench"}
# Written whole, or between marks of their own, by a program that records the revision itself.
WRITTEN = {"balance": "make bench-balance", "distillation": "bench/distillation.py",
           "elastic": "bench/elastic_time.py", "heads": "make bench-heads", "minutes": "make minutes",
           "reinforcement": "make bench-rl", "rivals": "make rivals", "serving": "make bench-serve", "soak": "make soak",
           "fault_injection": "make trial OPTIONS='--record …'"}
# Targets of the build that a command runs; scripts of bench/ run the program.
PROGRAM = re.compile(r"\b(?:\w+_bench|milp_test|sluice)\b")
SCRIPT = re.compile(r"\bbench/\w+\.py\b")
MARK = re.compile(r"(<!--printed by (.*?)-->\n).*?(<!--/-->)", re.DOTALL)


def build(command):
    targets = {*PROGRAM.findall(command), *(["sluice"] if SCRIPT.search(command) else [])}
    if targets:
        subprocess.run(["cmake", "--build", ROOT / "build", "-j", str(os.cpu_count()), "--target", *sorted(targets)],
                       stdout=sys.stderr, check=True)


def printed(command):
    environment = {**os.environ, "PATH": f"{ROOT / 'build'}:{os.environ['PATH']}"}
    done = subprocess.run(command, shell=True, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, check=True)
    return done.stdout.strip()


def block(match):
    begin, command, end = match.groups()
    build(command)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y")
    load = os.getloadavg()[0]
    origin = f"Command: `{command}`, at revision {recorded_revision()}, {hardware()}, {now}, load {load:.1f} before."
    return f"{begin}{origin}\n\n{printed(command)}\n\n{end}"


def main():
    revision = recorded_revision()
    for name in sys.argv[1:]:
        path = RESULTS / f"{name}.md"
        before = path.read_text()
        if not MARK.search(before):
            sys.exit(f"{path} has no block <!--printed by COMMAND--> … <!--/-->")
        path.write_text(MARK.sub(block, before))
        print(f"{path.relative_to(ROOT)} is of {revision}")


if __name__ == "__main__":
    main()
