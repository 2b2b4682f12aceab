"""Runs the long tests and writes what they found, with the machine they ran on, to soak.json and soak.md.

soak.py --results FOLDER [--kills N] [--trials N] [--plans N] [--laned N] [--threaded N] [--checked N] [--inputs N]
[--commands N];
$SLUICE, $PLAN_FUZZ, $LANED_PLAN_FUZZ, $INPUT_FUZZ and $PLAN_INSTANCES name the programs.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "integration"))

from harness import hardware, revision

KILLS_TEST = TESTS / "integration" / "kills_test.py"
CHECKER_TEST = TESTS / "checker" / "checker_test.py"
COMMAND_FUZZ = TESTS / "fuzz" / "command_fuzz.py"


def run(name, command):
    """Runs one long test; its row of the results."""
    print(f"soak: {name}: {' '.join(command)}", flush=True)
    begin = time.monotonic()
    process = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    print(process.stdout, flush=True)
    lines = process.stdout.strip().splitlines()
    return {"passed": process.returncode == 0, "seconds": round(time.monotonic() - begin, 1),
            "last_line": lines[-1] if lines else ""}


def run_kills(count):
    """Kills ranks of real runs; the row with what kills_test.py recorded in it."""
    with tempfile.TemporaryDirectory() as folder:
        record = pathlib.Path(folder) / "kills.json"
        row = run("kills", [sys.executable, str(KILLS_TEST), "--kills", str(count), "--seed", "1000",
                            "--record", str(record)])
        row["seen"] = json.loads(record.read_text()) if record.exists() else None
    return row


def markdown(results):
    """The results as a page."""
    kills, trials = results["kills"], results["trials"]
    plans, threaded = results["plans"], results["threaded_plans"]
    laned, checked, inputs = results["laned_plans"], results["checked_plans"], results["inputs"]
    commands = results["commands"]
    state = {True: "passed", False: "FAILED"}
    lines = ["# Soak", "", f"`make soak` on {results['hardware']}; revision {results['revision']}.", "",
             "| test | count | result | seconds |", "| --- | --- | --- | --- |",
             f"| `kill -9` of a random rank, 4 ranks over Gloo | {kills['count']} | {state[kills['passed']]} "
             f"| {kills['seconds']} |",
             f"| random faults at random phases of real runs | {trials['count']} | {state[trials['passed']]} "
             f"| {trials['seconds']} |",
             f"| random plans in virtual time under random delays | {plans['count']} | {state[plans['passed']]} "
             f"| {plans['seconds']} |",
             f"| batches planned on random lanes, verified, in virtual time under random delays | {laned['count']} "
             f"| {state[laned['passed']]} | {laned['seconds']} |",
             f"| random plans with real threads | {threaded['count']} | {state[threaded['passed']]} "
             f"| {threaded['seconds']} |",
             f"| random batches planned, every plan checked independently | {checked['count']} "
             f"| {state[checked['passed']]} | {checked['seconds']} |",
             f"| damaged input files | {inputs['count']} | {state[inputs['passed']]} | {inputs['seconds']} |",
             f"| commands on damaged files and odd arguments | {commands['count']} | {state[commands['passed']]} "
             f"| {commands['seconds']} |", ""]
    if kills["seen"]:
        seen = kills["seen"]
        lines += [f"{seen['while_saving']} of {seen['kills']} kills struck while a checkpoint was being written. All "
                  f"other ranks had ended at most {seen['longest_s']} s later; in {seen['named_by_survivors']} cases "
                  "they named the lost rank themselves (in the others it was killed before the ranks knew each other, "
                  "and the launcher named it). Every run resumed with `--resume auto`, lost no committed step, and "
                  "ended with the losses and parameters of an undisturbed run, bit for bit.", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--plans", type=int, default=10_000)
    parser.add_argument("--laned", type=int, default=10_000)
    parser.add_argument("--threaded", type=int, default=100)
    parser.add_argument("--checked", type=int, default=500, help="instances, of about four plans each")
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--commands", type=int, default=5000)
    options = parser.parse_args()
    fuzz = os.environ["PLAN_FUZZ"]
    results = {
        "schema": "sluice.soak/1", "hardware": hardware(), "revision": revision(),
        "kills": {"count": options.kills, **run_kills(options.kills)},
        "trials": {"count": options.trials,
                   **run("trials", [sys.executable, str(TESTS / "trial"), "--random", str(options.trials), "--seed",
                                    "1000"])},
        "plans": {"count": options.plans,
                  **run("plans", [fuzz, "--count", str(options.plans), "--seed", "100000"])},
        "laned_plans": {"count": options.laned,
                        **run("laned plans", [os.environ["LANED_PLAN_FUZZ"], "--count", str(options.laned),
                                              "--seed", "500000"])},
        "threaded_plans": {"count": options.threaded,
                           **run("threaded plans", [fuzz, "--count", str(options.threaded), "--seed", "200000",
                                                    "--threads"])},
        "checked_plans": {"count": options.checked,
                          **run("checked plans", [sys.executable, str(CHECKER_TEST), "--count", str(options.checked),
                                                  "--seed", "300000"])},
        "inputs": {"count": options.inputs,
                   **run("inputs", [os.environ["INPUT_FUZZ"], "--count", str(options.inputs), "--seed", "400000"])},
        "commands": {"count": options.commands,
                     **run("commands", [sys.executable, str(COMMAND_FUZZ), "--count", str(options.commands),
                                        "--seed", "600000", "--jobs", str(os.cpu_count())])}}
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "soak.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.results / "soak.md").write_text(markdown(results))
    print(markdown(results))
    tests = ("kills", "trials", "plans", "laned_plans", "threaded_plans", "checked_plans", "inputs",
             "commands")
    passed = all(results[test]["passed"] for test in tests)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
