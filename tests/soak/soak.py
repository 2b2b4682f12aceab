"""Runs the long tests and writes what they found to soak.json, and to soak.md between its marks: all of them, or some, beside
what earlier calls found of the others. Each test's row says on which revision and when it ran.

soak.py --results FOLDER [--only TEST]... [--count N]; $SLUICE, $PLAN_FUZZ, $LANED_PLAN_FUZZ, $INPUT_FUZZ, $REQUEST_FUZZ,
$PLAN_INSTANCES, $RUNTIME_TEST and $PLANNED_EQUIVALENCE_TEST name the programs.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "integration"))

from harness import hardware, recorded_revision


@dataclasses.dataclass(frozen=True)
class Test:
    """One long test: what it counts, how often, and its command without the count."""

    what: str
    count: int
    program: list  # $NAME is the variable's value, other words stand for themselves
    flag: str = "--count"  # or the variable that has the count, $NAME

    def command(self, count):
        words = [os.environ[word[1:]] if word.startswith("$") else word for word in self.program]
        return words if self.flag.startswith("$") else [*words, self.flag, str(count)]

    def environment(self, count):
        return os.environ | ({self.flag[1:]: str(count)} if self.flag.startswith("$") else {})


def script(*names):
    return [sys.executable, "-B", str(TESTS.joinpath(*names))]


ALL = {
    "kills": Test("`kill -9` of a random rank, 4 ranks over Gloo", 30,
                  [*script("integration", "kills_test.py"), "--seed", "1000"], "--kills"),
    "trials": Test("random faults at random phases of real runs", 300, [*script("fault_injection"), "--seed", "1000"],
                   "--random"),
    "epochs": Test("faults of elastic runs by chance: kills, partitions, half-open links, freezes, joins", 500,
                   [*script("fault_injection", "memberships.py"), "--seed", "1000"], "--faults"),
    "plans": Test("random plans in virtual time under random delays", 10_000, ["$PLAN_FUZZ", "--seed", "100000"]),
    "laned_plans": Test("batches planned on random lanes, verified, in virtual time under random delays", 10_000,
                        ["$LANED_PLAN_FUZZ", "--seed", "500000"]),
    "threaded_plans": Test("random plans with real threads", 100, ["$PLAN_FUZZ", "--seed", "200000", "--threads"]),
    "checked_plans": Test("random instances, of about four plans each, checked independently", 500,
                          [*script("checker", "checker_test.py"), "--seed", "300000"]),
    "equivalence": Test("steps of each run that is held to one rank's, losses and parameters to 1e-11: strategies, exchanges, "
                        "experts, recurrent layers, codecs, moments in 8 bits", 20, ["$RUNTIME_TEST"], "$SLUICE_TEST_STEPS"),
    "planned_equivalence": Test("the same of planned strategies, other systems' among them", 20, ["$PLANNED_EQUIVALENCE_TEST"],
                                "$SLUICE_TEST_STEPS"),
    "requests": Test("messages of HTTP in pieces", 100_000, ["$REQUEST_FUZZ", "--seed", "800000"]),
    "bodies": Test("damaged bodies of requests to `serve`", 5000, [*script("fuzz", "bodies.py"), "--seed", "900000"]),
    "inputs": Test("damaged input files", 200_000, ["$INPUT_FUZZ", "--seed", "400000"]),
    "commands": Test("commands on damaged files and odd arguments", 5000,
                     [*script("fuzz", "command_fuzz.py"), "--seed", "600000", "--jobs", str(os.cpu_count())]),
    "chats": Test("random conversations by ten real chat templates, beside transformers", 20_000,
                  [*script("chats", "chat_fuzz.py"), "--seed", "700000"]),
}


def summary(output, count):
    """What a test says at its end: the last line that begins with its count ("300 trials of …"), or GoogleTest's counts, behind
    which it lists skipped tests ("513 tests, 23 skipped"), or the last line."""
    lines = [line for line in output.splitlines() if line.strip() and "DISABLED TEST" not in line]
    if counted := [line for line in lines if line.startswith(f"{count} ")]:
        return counted[-1]
    counts = {kind: int(count) for kind, count in re.findall(r"^\[  (\w+) +\] (\d+) tests?\b", output, re.MULTILINE)}
    if not counts:
        return lines[-1] if lines else ""
    return f"{sum(counts.values())} tests" + "".join(f", {count} {kind.lower()}" for kind, count in counts.items() if kind != "PASSED")


def run(name, count, of_revision):
    """Runs one long test; its row of the results."""
    with tempfile.TemporaryDirectory() as folder:
        record = pathlib.Path(folder) / "record.json"
        command = ALL[name].command(count) + (["--record", str(record)] if name == "kills" else [])
        print(f"soak: {name}: {' '.join(command)}", flush=True)
        begin = time.monotonic()
        process = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                                 env=ALL[name].environment(count))
        print(process.stdout, flush=True)
        return {"count": count, "passed": process.returncode == 0, "seconds": round(time.monotonic() - begin, 1),
                "last_line": summary(process.stdout, count), "revision": of_revision, "hardware": hardware(),
                "day": datetime.date.today().isoformat(),
                **({"seen": json.loads(record.read_text())} if record.exists() else {})}


def markdown(results):
    """The text between the page's marks."""
    machines = ", ".join(sorted({row["hardware"] for row in results.values()}))
    lines = [f"`make soak` on {machines}.", "", "| test | count | result | seconds | revision |",
             "| --- | --- | --- | --- | --- |"]
    for name, test in ALL.items():
        row = results.get(name)
        if row:
            lines.append(f"| {test.what} | {row['count']} | {'passed' if row['passed'] else 'FAILED'}: "
                         f"{row['last_line']} | {row['seconds']} | {row['revision']}, {row['day']} |")
    lines.append("")
    seen = results.get("kills", {}).get("seen")
    if seen:
        lines += [f"{seen['while_saving']} of {seen['kills']} kills struck while a checkpoint was being written. All "
                  f"other ranks had ended at most {seen['longest_s']} s later; in {seen['named_by_survivors']} cases "
                  "they named the lost rank themselves (in the others it was killed before the ranks knew each other, "
                  "and the launcher named it). Every run resumed with `--resume auto`, lost no committed step, and "
                  "ended with the losses and parameters of an undisturbed run, bit for bit.", ""]
    return "\n".join(lines)


MARKED = re.compile(r"(<!--made by tests/soak-->\n).*?(<!--/-->)", re.DOTALL)


def write_page(path, results):
    """Text around the marks stays."""
    page = path.read_text() if path.exists() else "# Soak\n\n<!--made by tests/soak-->\n<!--/-->\n"
    if not MARKED.search(page):
        sys.exit(f"{path} has no block <!--made by tests/soak--> … <!--/-->")
    path.write_text(MARKED.sub(lambda match: match[1] + markdown(results) + match[2], page))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--only", choices=ALL, action="append", help="this test; may be given again")
    parser.add_argument("--count", type=int, help="so many cases of each, in place of its own number")
    options = parser.parse_args()
    of_revision = recorded_revision()
    options.results.mkdir(parents=True, exist_ok=True)
    store = options.results / "soak.json"
    results = json.loads(store.read_text())["tests"] if store.exists() else {}
    passed = True
    for name in options.only or ALL:
        results[name] = run(name, options.count or ALL[name].count, of_revision)
        passed = passed and results[name]["passed"]
        store.write_text(json.dumps({"schema": "sluice.soak/2", "tests": results}, indent=1) + "\n")
        write_page(options.results / "soak.md", results)
    print(markdown(results))
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
