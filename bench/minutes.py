#!/usr/bin/env python3
"""Measures how long a newcomer waits for a result and a developer for a verdict: processor minutes, user plus system time of
the whole command and of all that it started, on two cores without a compiler cache. Wall time stands beside them.

    bench/minutes.py [--only ROW]... [--install] [--record FILE] [--keep FOLDER] [--list]

Works in a clone of this revision (what is not committed does not count) in a temporary folder. The environments of
tools/bootstrap are shared, or with --install made there, too; Debian's packages stay. Rows that were not measured now
keep what an earlier call recorded of them. Each row may be measured alone: what it needs (--list says it) is made first and
counts for no row but its own.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from harness import hardware  # noqa: E402

CORES = 2
STARTS = 20
# A source that few others need, and the tests of its module: a target of CMake's and names of ctest's.
LEAVES = {"plan": ("src/plan", "plan_test", "^plan$"), "layers": ("src/layers", "layers_test", "^layers$"),
          "serve": ("src/serve", "serve_test", "^serve$"), "cli": ("cli", "sluice", "^cli/")}
HEADERS = {"cost_model.h": "src/cost/cost_model.h", "model.h": "src/model/model.h"}


@dataclasses.dataclass
class Spent:
    """Processor seconds, seconds by the clock, and the exit status where it is not 0."""

    cpu_s: float
    wall_s: float
    status: int = 0

    def __add__(self, other):
        return Spent(self.cpu_s + other.cpu_s, self.wall_s + other.wall_s, self.status or other.status)


class Clone:
    """A clone of this revision, in which commands are measured. What a row needs first is made once."""

    def __init__(self, folder, install=False):
        self.folder, self.install = folder, install
        subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
        self.environment = {**os.environ, "CCACHE_DISABLE": "1"}
        self.environment.pop("MAKEFLAGS", None)
        if install:
            self.environment["SLUICE_DEPS"] = str(folder.with_name("deps"))
        self.pinned = ["taskset", "-c", f"0-{CORES - 1}"] if os.cpu_count() > CORES else []
        self.done = set()

    def revision(self):
        return subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=self.folder, check=True, capture_output=True,
                              text=True).stdout.strip()

    def spend(self, *command, **options):
        """Runs a command; what it took. Its output goes to our standard error."""
        print(f"minutes: {' '.join(map(str, command))}", file=sys.stderr, flush=True)
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run([*self.pinned, *map(str, command)], cwd=self.folder, env=self.environment, check=False,
                              **{"stdout": sys.stderr, **options})
        wall_s, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        return Spent(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s, done.returncode)

    def make(self, *words):
        return self.spend("make", f"JOBS={CORES}", *words)

    def once(self, target):
        """Makes what a row needs, unless another row has."""
        if target in self.done:
            return
        status = self.make(target).status
        if status != 0:
            sys.exit(f"minutes: make {target} ended with {status}, and what is to be measured stands on it: see above, mend that first")
        self.done.add(target)

    def build(self, *targets):
        return self.spend("cmake", "--build", "build", "-j", CORES, *(["--target", *targets] if targets else []))

    def leaf(self, folder):
        """The smallest source of a folder that no test shares."""
        sources = [path for path in (self.folder / folder).glob("*.cpp") if not re.search(r"test|_cuda|main", path.name)]
        return min(sources, key=lambda path: (path.stat().st_size, path.name))


def train(clone):
    """From nothing, or nothing but the environments of tools/bootstrap."""
    clone.done.add("train")
    return {f"make train{', environments installed' if clone.install else ''}": clone.make("train")}


def test(clone):
    """Compiling, and running all of `make test`: the sum, and both."""
    clone.done |= {"tested", "test"}
    compiled = clone.make("tested")
    ran = clone.make("test")
    return {"make test behind it": compiled + ran, "compiling what make test runs": compiled, "the tests, built, no stamps": ran}


def rest(clone):
    """The tests that only ALL=1 runs: lab, the benches' checks and the whole table of faults."""
    compiled = clone.make("tested", "ALL=1")
    ran = clone.spend(sys.executable, "-B", "tests/run.py", "--jobs", CORES, "--", "-C", "all", "-L", "^(lab|bench|table)$")
    return {"compiling what ALL=1 adds": compiled, "the tests that ALL=1 adds": ran}


def nothing(clone):
    """`make test` where all tests have passed and nothing has changed."""
    return {"make test, nothing changed": clone.make("test")}


def ci(clone):
    """`.ci/run` on a clean checkout of its own."""
    with tempfile.TemporaryDirectory(prefix="sluice-ci-") as folder:
        fresh = Clone(pathlib.Path(folder, "sluice"))
        return {".ci/run on a clean checkout": fresh.spend(".ci/run")}


def leaf_of(module):
    def changed_leaf(clone):
        folder, target, names = LEAVES[module]
        path = clone.leaf(folder)
        # The change stays: taking it back would be another, which the next row would pay for.
        with path.open("a") as source:
            source.write(f"\nextern \"C\" [[gnu::used]] int sluice_changed_{module}(int x) {{ return x + 1; }}\n")
        clone.build("build.ninja")  # globs
        own = clone.build(target) + clone.spend(sys.executable, "-B", "tests/run.py", "--jobs", CORES, "--only", names)
        rest = clone.make("test")
        return {f"{path.name} of {module}: its own tests": own, f"{path.name} of {module}: make test": own + rest}

    changed_leaf.__doc__ = f"A function more in one source of {module}, which changes what is linked."
    return changed_leaf


def changed_headers(clone):
    """What is compiled and linked anew; no test runs."""
    found = {}
    for name, place in HEADERS.items():
        path = clone.folder / place
        if path.exists():
            clone.build()  # what another row has changed
            path.write_text(path.read_text() + "// Changed.\n")
            found[f"{name} changed: compile"] = clone.build()
    clone.done -= {"tested", "test"}
    return found


def starts(clone):
    """The mean of some starts of the program that this tree, or else the clone, has built."""
    program = ROOT / "build/sluice"
    if not program.exists():
        clone.once("build")
        program = clone.folder / "build/sluice"
    lengths = clone.folder / "bench/data/code_lengths.txt"
    commands = {"sluice --version": ["--version"], "sluice keys config": ["keys", "config"],
                "sluice plan": ["plan", "--gpus", 8, "--model", "llama-7b", "--lengths", lengths, "--tokens-per-step", 8192,
                                "--strategies", "4x<2,1,1>", "--context", 8192],
                "sluice inspect": ["inspect", clone.folder / "data/calibrations/a800-32b.json"]}
    found = {}
    for name, arguments in commands.items():
        begun = [clone.spend(program, *arguments, stdout=subprocess.DEVNULL) for _ in range(STARTS)]
        found[f"{name}: start"] = Spent(sum(each.cpu_s for each in begun) / STARTS, sum(each.wall_s for each in begun) / STARTS,
                                      max(each.status for each in begun))
    return found


@dataclasses.dataclass
class Row:
    """What measures a row, and the target of `make` that it needs first."""

    measure: Callable
    needs: str = ""


# In an order in which no row finds made what it measures.
ROWS = {"train": Row(train), "test": Row(test, "train"), "rest": Row(rest, "tested"), "nothing": Row(nothing, "test"),
        **{f"leaf-{module}": Row(leaf_of(module), "test") for module in LEAVES}, "header": Row(changed_headers, "tested"),
        "ci": Row(ci), "start": Row(starts)}
# Goals of rows by the beginning of their names, in "cpu" or "wall" seconds or minutes.
GOALS = (("make train", "cpu", 22 * 60), ("make test behind", "cpu", 36 * 60), ("the tests, built", "cpu", 1100),
         (".ci/run", "wall", 3600), ("cost_model.h", "cpu", 12 * 60), ("model.h", "cpu", 12 * 60), ("sluice ", "cpu", 0.03))


def goal_of(name):
    """What is wanted: of processor or wall time, and how many seconds; None: nothing."""
    if ": its own tests" in name:
        return "wall", 30
    if ": make test" in name:
        return "wall", 300
    return next(((of, seconds) for begin, of, seconds in GOALS if name.startswith(begin)), None)


def duration(seconds):
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.3f} s"


def page(rows):
    lines = ["# Minutes", "", "`make minutes`: what commands take on two cores without a compiler cache, in a fresh clone beside "
             "installed environments (`tools/bootstrap`). Processor time is user plus system time of the command and all that it "
             "started; wall time is whatever the machine did beside it.", "",
             "| what | processor | wall | goal | revision | machine, day |", "| --- | ---: | ---: | --- | --- | --- |"]
    for name, row in rows.items():
        goal = goal_of(name)
        wanted = "" if goal is None else f"{'processor' if goal[0] == 'cpu' else 'wall'} <= {duration(goal[1])}: " \
            + ("holds" if row[f"{goal[0]}_s"] <= goal[1] else "**missed**")
        failed = f" (ended with {row['status']})" if row["status"] else ""
        lines.append(f"| {name}{failed} | {duration(row['cpu_s'])} | {duration(row['wall_s'])} | {wanted} | {row['revision']} | "
                     f"{row['machine']}, {row['day']} |")
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=ROWS, action="append", help="these rows; may be given again")
    parser.add_argument("--install", action="store_true", help="make the environments of tools/bootstrap anew (gigabytes)")
    parser.add_argument("--record", type=pathlib.Path, default=ROOT / "bench/results/minutes.md")
    parser.add_argument("--keep", type=pathlib.Path, help="clone to this folder, and leave it")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    options = parser.parse_args()
    if options.list:
        for name, row in ROWS.items():
            print(f"{name:8s} {row.measure.__doc__}{f' Needs `make {row.needs}`, and makes it first.' if row.needs else ''}")
        return
    store = options.record.with_suffix(".json")
    if store == options.record:
        parser.error(f"--record {options.record} names the page, FILE.md; its figures lie beside it in FILE.json")
    rows = json.loads(store.read_text()) if store.exists() else {}
    with tempfile.TemporaryDirectory(prefix="sluice-minutes-", ignore_cleanup_errors=True) as scratch:
        clone = Clone(options.keep or pathlib.Path(scratch, "sluice"), options.install)
        for row in (row for key, row in ROWS.items() if key in (options.only or ROWS)):
            if row.needs:
                clone.once(row.needs)
            for name, spent in row.measure(clone).items():
                rows[name] = {**dataclasses.asdict(spent), "revision": clone.revision(), "machine": hardware(),
                              "day": datetime.date.today().isoformat()}
                print(f"{name}: {duration(spent.cpu_s)} of processors, {duration(spent.wall_s)} by the clock", flush=True)
            store.write_text(json.dumps(rows, indent=1) + "\n")
            options.record.write_text(page(rows))


if __name__ == "__main__":
    main()
