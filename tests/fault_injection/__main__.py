"""Strikes real runs with faults, and checks that nothing is lost: a table of faults, the phases of a run at which each strikes,
and launchers. After the fault the run is resumed; every line of its metrics and every parameter must be what a run has
that nothing happened to, and no process, port or file may be left over.

$SLUICE names the program. Exit status: 0 all held, 1 something broke, 2 wrong usage, 77 nothing could be tried.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import shlex
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

import faults_commands
import faults_damage
import faults_disk
import faults_elastic
import faults_limits
import faults_network
import faults_sharing
import faults_signals
import faults_strangers
import faults_suites
from harness import EXIT_SKIPPED, hardware, recorded_revision
from job import PROGRAM, Broken
from phase import Missed
from fault_injection import Skipped, Testbed, Trial

GROUPS = [module.FAULTS for module in (faults_signals, faults_disk, faults_damage, faults_limits, faults_strangers,
                                       faults_sharing, faults_network, faults_elastic, faults_commands)] + faults_suites.GROUPS
# How often a phase that was over before it could be struck is tried again, with other chances.
ATTEMPTS = 4


@dataclasses.dataclass(frozen=True)
class Case:
    """A fault at a phase: a row of the table."""

    fault: object
    phase: str

    def __str__(self):
        under = "" if self.fault.launcher == "sluice" else f" under {self.fault.launcher}"
        return f"{self.fault.group}: {self.fault.name} @ {self.phase}{under}"


@dataclasses.dataclass
class Row:
    """What came of a case."""

    case: Case
    seed: int
    result: str  # held, BROKEN, missed or skipped
    why: str
    seconds: float = 0
    revision: str = ""  # of the program that was tried


def all_cases():
    return [Case(fault, phase) for group in GROUPS for fault in group.faults for phase in fault.phases]


def attempt(testbed, case, seed, number, keep):
    """One trial in a folder of its own, which stays if it broke and --keep asks for it."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trial-", dir=testbed.folder))
    trial = Trial(testbed, case.phase, f"{seed} {case} {number}", folder)
    broke = True
    try:
        trial.execute(case.fault)
        broke = False
    except (Missed, Skipped):
        broke = False
        raise
    finally:
        if broke and keep:
            name = re.sub(r"\W+", "-", str(case)).strip("-")
            shutil.copytree(folder, keep / f"{name}-{seed}", dirs_exist_ok=True, symlinks=True)
        shutil.rmtree(folder, ignore_errors=True)


def run_case(testbed, case, seed, keep):
    begin = time.monotonic()
    result, why = "missed", "the run was past this phase each time"
    for number in range(ATTEMPTS):
        try:
            attempt(testbed, case, seed, number, keep)
            result, why = "held", ""
        except Missed:
            continue
        except Skipped as reason:
            result, why = "skipped", str(reason)
        except Broken as reason:
            result, why = "BROKEN", str(reason)
        except Exception as error:  # a fault of the trial itself is no reason to lose the other rows
            result, why = "BROKEN", f"the trial itself: {type(error).__name__}: {error}"
        break
    return Row(case, seed, result, why, time.monotonic() - begin)


def show(row, number, total):
    print(f"{number:4d}/{total}  {row.result:8s}{row.seconds:6.1f} s  {row.case}", flush=True)
    if row.why:
        print(f"{'':22s}{' '.join(row.why.split())[:600]}", flush=True)
    if row.result == "BROKEN":
        print(f"{'':22s}again: tests/fault_injection --seed {row.seed} --only {shlex.quote(str(row.case))}", flush=True)


def table(rows):
    """The matrix as Markdown, by groups: a line for each fault, with how it went at the phases that it was tried at."""
    lines = []
    for group in dict.fromkeys(row.case.fault.group for row in rows):
        lines += ["", f"## {group.capitalize()}", "", "| fault | phases | launcher | wanted | result |", "| --- | --- | --- | --- | --- |"]
        tried = [row for row in rows if row.case.fault.group == group]
        for fault in dict.fromkeys(row.case.fault for row in tried):
            lines.append(line_of(fault, [row for row in tried if row.case.fault == fault]))
    return "\n".join(lines)


def line_of(fault, rows):
    counts = collections.Counter(row.result for row in rows)
    result = ", ".join(f"{count} {name}" for name, count in counts.items())
    why = "; ".join(sorted({" ".join(row.why.split())[:160].replace("|", "\\|") for row in rows if row.why}))
    phases = " ".join(dict.fromkeys(row.case.phase for row in rows))
    return f"| {fault.name} | {phases} | {fault.launcher} | {fault.wanted} | {result}{': ' + why if why else ''} |"


def summary(rows):
    counts = collections.Counter(row.result for row in rows)
    faults = len({row.case.fault for row in rows})
    return (f"{len(rows)} trials of {faults} kinds of faults: "
            + ", ".join(f"{counts[name]} {name}" for name in ("held", "BROKEN", "missed", "skipped") if counts[name]))


def read_record(path):
    """{case: what came of it} of what earlier calls recorded."""
    store = path.with_suffix(".json")
    return json.loads(store.read_text()) if store.exists() else {}


def write_record(path, rows, of_revision):
    """The page of all that was tried last, in this call or an earlier one: the matrix may be tried in parts. What they
    found lies beside the page, as JSON."""
    store = path.with_suffix(".json")
    known = read_record(path)
    for row in rows:
        known[str(row.case)] = {"seed": row.seed, "result": row.result, "why": " ".join(row.why.split())[:160],
                                "revision": of_revision}
    cases = [case for case in all_cases() if str(case) in known]
    store.write_text(json.dumps({str(case): known[str(case)] for case in cases}, indent=1) + "\n")
    recorded = [Row(case, **known[str(case)]) for case in cases]
    revisions = ", ".join(sorted({row.revision for row in recorded}))
    page = ["# Trial", "", f"`make trial` at revision {revisions} on {hardware()}, {len(recorded)} of {len(all_cases())} "
            f"cases: {summary(recorded)}. What a phase is, and what is checked after every fault, stands in "
            "[docs/fault_injection.md](../../docs/fault_injection.md).", table(recorded), ""]
    path.write_text("\n".join(page))


def have_a_room():
    """Begins anew with mounts and named memory of its own, where what other trials leave there is not seen, as root or in a
    user namespace in which this user is root: networks and mounts need that. Where the system forbids it, goes on here."""
    if os.environ.get("TRIAL_ROOM") or not shutil.which("unshare"):
        return
    inside = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "sh", "-c",
              "mount -t tmpfs -o mode=1777 none /dev/shm && exec \"$@\"", "sh"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode == 0:
        os.environ["TRIAL_ROOM"] = "1"
        os.execvp(inside[0], [*inside, sys.executable, *sys.orig_argv[1:]])


def parse_options():
    parser = argparse.ArgumentParser(prog="fault_injection", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", action="append", help="only cases with this in their name, 'GROUP: "
                        "FAULT @ PHASE', which --list shows; may be given again")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SLUICE_SEED", 1)),
                        help="draws samples, victims and moments (default $SLUICE_SEED, or 1)")
    parser.add_argument("--sample", action="store_true", help="one of each group under each launcher, drawn by the seed; "
                        "without groups that are tests of their own")
    parser.add_argument("--part", metavar="I/N", type=part, default=(1, 1), help="every N-th of these, from the I-th")
    parser.add_argument("--random", type=int, metavar="N", help="N cases by chance, each with a seed of its own")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="keep the folders of what broke here")
    parser.add_argument("--record", type=pathlib.Path, metavar="FILE", help="write the table to a page, with "
                        "what earlier calls recorded there of other cases")
    parser.add_argument("--rest", action="store_true", help="only cases of which --record's page knows nothing yet")
    options = parser.parse_args()
    if options.rest and not options.record:
        parser.error("--rest needs the page: name it with --record")
    return options


def chosen(options):
    """[(case, seed)] to try."""
    cases = all_cases()
    if options.only:
        cases = [case for case in cases if any(text in str(case) for text in options.only)]
    if options.sample:
        cases = sample(cases, options.seed)
    if options.rest:
        known = read_record(options.record)
        cases = [case for case in cases if str(case) not in known]
    if options.random and cases:
        chance = random.Random(options.seed)
        return [(chance.choice(cases), options.seed * 100_000 + number) for number in range(options.random)]
    first, step = options.part
    return [(case, options.seed) for case in cases[first - 1::step]]


def sample(cases, seed):
    """One case of each group under each launcher, of groups that `make test` runs nowhere else."""
    kinds = {}
    for case in cases:
        if case.fault.group in faults_suites.RUN_WHOLE:
            continue
        kinds.setdefault((case.fault.group, case.fault.launcher), []).append(case)
    chance = random.Random(seed)
    return [chance.choice(kind) for kind in kinds.values()]


def part(text):
    """I/N as two numbers."""
    first, step = map(int, text.split("/"))
    if not 1 <= first <= step:
        raise ValueError
    return first, step


def print_counts(rows, seconds):
    """As unittest counts, for tests/run.py."""
    for row in rows:
        if row.result in ("missed", "skipped"):
            print(f"{row.case} ... skipped '{' '.join(row.why.split())}'")
    broken = sum(row.result == "BROKEN" for row in rows)
    print(f"Ran {len(rows)} tests in {seconds:.0f}s")
    print(f"FAILED (failures={broken})" if broken else "OK")


def main():
    options = parse_options()
    of_revision = recorded_revision() if options.record else ""
    trials = chosen(options)
    if options.list:
        for case, _ in trials:
            print(f"{case}  ->  {case.fault.wanted}")
        print(f"{len(trials)} trials of {len({case.fault for case, _ in trials})} kinds of faults")
        return 0
    if not trials and options.rest:
        print("trial: the page has all of these cases")
        return 0
    if not trials:
        print(f"trial: no case has {' or '.join(map(repr, options.only))} in its name: --list shows what there is")
        return 2
    if not os.access(PROGRAM, os.X_OK):
        print(f"trial: {PROGRAM} cannot be run: build it (make build), or name it in $SLUICE")
        return 2
    have_a_room()
    rows, begin = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sluice-trial-", ignore_cleanup_errors=True) as folder:
        try:
            testbed = Testbed(pathlib.Path(folder))
        except Broken as reason:
            print(f"trial: nothing was tried: {reason}")
            return 1
        with contextlib.suppress(KeyboardInterrupt):
            for number, (case, seed) in enumerate(trials, 1):
                rows.append(run_case(testbed, case, seed, options.keep))
                show(rows[-1], number, len(trials))
    print(summary(rows))
    print_counts(rows, time.monotonic() - begin)
    not_tried = [row for row in rows if row.result in ("missed", "skipped")]
    if options.record:
        write_record(options.record, rows, of_revision)
    if len(rows) != len(trials) or any(row.result == "BROKEN" for row in rows):
        return 1
    return EXIT_SKIPPED if rows and len(not_tried) == len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
