#!/usr/bin/env python3
"""Runs the tests of a build whose inputs changed since they last passed, and says what ran: cases that passed and failed,
those that stood from before, and those that were skipped, with why.

    tests/run.py --build build [--all [--sample]] [--only REGEX] [--seed N] [--jobs N] [-- ctest options]

A case is a test of GoogleTest's or unittest's, or a whole program of any other kind. What a test's inputs are stands in
tests/stamps.py. A test that failed or was skipped as a whole runs again the next time, and so does one with cases that
`tools/bootstrap` would let this machine run; these count as failures where $CI is set: there all that a machine can run has
to run. With --all or $CI, a few tests that failed are tried once more, alone, and named. What no machine without a GPU, or without certain rights, can run is shown and stays a skip.
Exit status: 0 all well; 1 otherwise.
"""

import argparse
import collections
import contextlib
import dataclasses
import os
import pathlib
import re
import subprocess
import sys

import input_trace
import stamps

ROOT = pathlib.Path(__file__).resolve().parent.parent
HANG_S = 7200  # after which a test hangs; none depends on how long it takes
# With more failures than so many no second try would change the verdict.
MOST_TRIED_AGAIN = 5
# Stands in each reason that tools/bootstrap removes.
CURABLE = re.compile(r"tools/bootstrap(?: --\w+)? installs")


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

    def curable(self):
        """How many were skipped that this machine could run."""
        return sum(count for reason, count in self.skipped.items() if CURABLE.search(reason))


def count_of_google_test(output):
    # The last one counts: a test may show what a program that it starts says.
    ran = re.findall(r"^\[=+\] (\d+) tests? from .* ran\.", output, re.MULTILINE)[-1]
    failed = len(set(re.findall(r"^\[  FAILED  \] (\S+?)(?:, where .*)? \(\d+ ms\)$", output, re.MULTILINE)))
    # A skipped case's last words before its line: "FILE:LINE: Skipped", then the reason.
    skipped = collections.Counter()
    for case in re.findall(r"^\[ RUN      \] .*\n((?:(?!\[ RUN ).*\n)*?)\[  SKIPPED \] .* \(\d+ ms\)$", output, re.MULTILINE):
        lines = case.strip().splitlines()
        at = max((i for i, line in enumerate(lines) if line.endswith(": Skipped")), default=None)
        skipped[lines[at + 1] if at is not None and at + 1 < len(lines) else "no reason given"] += 1
    return Count(int(ran) - failed - skipped.total(), failed, skipped)


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
    if status not in ("Passed", "Skipped") and count.failed == 0:
        count.failed = 1  # it crashed, or timed out
    return count


def outputs_of(text):
    """{name: output} of the tests in ctest's LastTest.log. (It calls what was skipped or could not run passed.)"""
    found = {}
    for block in re.split(r"^\d+/\d+ Testing: ", text, flags=re.MULTILINE)[1:]:
        output = block.split("Output:\n" + "-" * 58 + "\n", 1)[-1].split("<end of output>", 1)[0]
        found[block.split("\n", 1)[0]] = output + "\n"
    return found


def told(total, stood, status):
    """The summary's lines; the last one counts. `stood`: of the tests that did not run, by name."""
    before = Count()
    for count in stood.values():
        before.add(count)
    skipped = total.skipped + before.skipped
    lines = [f"skipped: {count} x {reason}" for reason, count in sorted(skipped.items())]
    if total.curable():
        lines.append(f"This machine could run {total.curable()} of these: see the reasons; where $CI is set that is a failure.")
    if stood:
        lines.append(f"stood: {before.passed} cases of {len(stood)} tests passed before with the same inputs (ALL=1 runs all)")
    failed = max(total.failed, 1 if status != 0 else 0)
    return [*lines, f"{total.passed} passed, {failed} failed, {skipped.total()} skipped"]


def reaped_s(pid):
    """Processor seconds of the children that a process has waited for, and of theirs; 0 behind its end."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def run_ctest(build, jobs, tests, arguments, spent):
    """Runs these tests, and waits; ctest's exit status, and [name, status, output] of each test that ended. Adds the processor
    seconds of each to `spent`: ctest names a test when it has waited for it."""
    names = "|".join(re.sub(r"([.+*?()\[\]^$|\\])", r"\\\1", test.name) for test in tests)
    # Many a test waits for silence to be noticed or a limit to pass: one more than there are processors keeps these busy.
    command = ["ctest", "--output-on-failure", "--no-tests=error", "--timeout", str(HANG_S), "-j", str(jobs + 1), "-R", f"^({names})$", *arguments]
    statuses, before_s = {}, 0.0
    with subprocess.Popen(command, cwd=build, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        with contextlib.suppress(KeyboardInterrupt):  # which ctest has had, too: what ended until then counts
            for line in process.stdout:
                print(line, end="", flush=True)
                ended = re.match(r" *\d+/\d+ Test +#\d+: (\S+) \.*(?:\*\*\*| *)(.*?) +[\d.]+ sec", line)
                if ended:
                    statuses[ended[1]] = ended[2]
                    now_s = max(before_s, reaped_s(process.pid))
                    spent[ended[1]] += now_s - before_s
                    before_s = now_s
    folder = build / "Testing/Temporary"
    log = next(path for path in (folder / "LastTest.log.tmp", folder / "LastTest.log") if path.exists())
    outputs = outputs_of(log.read_text(errors="replace"))
    return process.returncode, [(name, status, outputs.get(name, "")) for name, status in statuses.items()]


def costly(spent):
    """One line: processor seconds of all tests that ran, and which took most."""
    most = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in spent.most_common(8) if seconds >= 1)
    return f"the tests took {sum(spent.values()):.0f} s of processors" + (f"; most: {most}" if most else "")


def try_again(build, jobs, tests, ended, arguments, spent):
    """Runs the tests of `ended` that failed once more, alone, if they are few, and says which then passed: a busy machine may
    break what waits for others. ctest's exit status, and `ended` with what came of the second try."""
    failed = {name for name, status, output in ended if count_of(output, status).failed}
    if not 0 < len(failed) <= MOST_TRIED_AGAIN:
        return int(bool(failed)), ended
    print(f"once more: {', '.join(sorted(failed))}", flush=True)
    status, again = run_ctest(build, 0, [test for test in tests if test.name in failed], arguments, spent)
    for name, outcome, output in again:
        if not count_of(output, outcome).failed:
            print(f"failed, and passed at a second try: {name}", flush=True)
    tried = {name for name, *_ in again}
    return status, [*(entry for entry in ended if entry[0] not in tried), *again]


def keep(kept, before, ended):
    """Stamps what passed with inputs that are still those of `before`, {name: (test, inputs)}; the count of all that ended."""
    total = Count()
    for name, status, output in ended:
        count = count_of(output, status)
        total.add(count)
        test, inputs = before[name]
        if status == "Passed" and not count.failed and count.passed and not count.curable() and inputs is not None \
                and inputs == kept.inputs(test):
            kept.write(test, inputs, {"passed": count.passed, "skipped": dict(count.skipped)})
        else:
            kept.remove(test)
    return total


def parted(kept, tests, everything):
    """The tests to run, and the counts of those that stand from before, by name. Prints why what runs does."""
    running, stood, reasons = [], {}, collections.Counter()
    for test in tests:
        found, why = (None, "all are asked for") if everything else kept.stands(test)
        if found:
            stood[test.name] = Count(found["passed"], 0, collections.Counter(found["skipped"]))
        else:
            running.append(test)
            reasons[why.replace(f"{ROOT}/", "")] += 1
    for why, count in reasons.most_common():
        print(f"runs {count} tests: {why}")
    return running, stood


def seed_of(build, digests):
    """A seed for the samples that tests draw: another one for each program that is built."""
    return int(stamps.digest_of(*(digests.of(build / name) for name in ("sluice", "sluice-torch")))[:5], 16)


def traced(tests, roots):
    """Prints what tests open and do not declare; how many do, as an exit status."""
    count = 0
    for test in tests:
        if test.declared() is not None:
            paths = input_trace.undeclared(test, roots)
            print(f"{test.name}: {', '.join(paths) or 'all is declared'}", flush=True)
            count += bool(paths)
    return min(count, 100)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processors; a test more runs at a time")
    parser.add_argument("--all", action="store_true", help="also what stands from before, and what `make test` only samples")
    parser.add_argument("--sample", action="store_true", help="with --all: the samples in place of the whole tables")
    parser.add_argument("--only", metavar="REGEX", help="only tests with such names")
    parser.add_argument("--seed", type=int, help="draws the samples; by default made of the program's content")
    parser.add_argument("--trace", action="store_true", help="run each under strace, and name the files of the repository that it "
                        "opens and does not declare as inputs")
    parser.add_argument("ctest", nargs="*", help="options for ctest")
    return parser.parse_args()


def main():
    options = parse_options()
    # Several tests run at a time, and one's threads would spin at the end of every loop for a core that another test has.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    build = options.build.resolve()
    left_out = stamps.TABLE if options.sample else stamps.SAMPLE
    arguments = [*options.ctest, *(["-C", "all", "-LE", f"^{left_out}$"] if options.all else [])]
    kept = stamps.Stamps(build, [ROOT, build])
    seed = options.seed if options.seed is not None else seed_of(build, kept.digests)
    os.environ[stamps.SEED] = str(seed)
    tests = stamps.listed(build, [*arguments, *(["-R", options.only] if options.only else [])])
    if not tests:
        sys.exit(f"run.py: {build} has no such tests")
    if options.trace:
        sys.exit(traced(tests, [ROOT, build]))
    running, stood = parted(kept, tests, options.all)
    if any(stamps.SAMPLE in test.labels() for test in running):
        print(f"seed {seed} draws the samples: make test SEED={seed} draws them again", flush=True)
    before = {test.name: (test, kept.inputs(test)) for test in running}
    spent = collections.Counter()
    status, ended = run_ctest(build, options.jobs, running, arguments, spent) if running else (0, [])
    if status != 0 and (options.all or os.environ.get("CI")):
        status, ended = try_again(build, options.jobs, running, ended, arguments, spent)
    if running:
        print(costly(spent))
    total = keep(kept, before, ended)
    print("\n".join(told(total, stood, status)), flush=True)
    sys.exit(1 if status != 0 or total.failed or (total.curable() and os.environ.get("CI")) else 0)


if __name__ == "__main__":
    main()
