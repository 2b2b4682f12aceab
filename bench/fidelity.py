"""How well `sluice simulate` foresees a real run: the quick start, profiled and trained on this machine's cores.

For each strategy: profile this machine, train a few steps with that calibration, simulate the same steps with the
same file, and compare: step times, and the time of all nodes of a kind. Nothing of the run reaches the simulation
but calibration.json. Strategies take turns, so that a machine whose load drifts is compared with itself.

    make bench-fidelity
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SLUICE = os.environ.get("SLUICE", str(HERE.parent / "build" / "sluice"))
CONFIG = HERE.parent / "examples" / "quickstart.toml"
RANKS = 2
STRATEGIES = ("2x<1,1,1>", "<2,1,1>", "<1,2,1>")
WARM_UP_STEPS = 1
GOAL = 0.10
EXCHANGES = ("pull", "push", "send", "reduce")  # their time in a run is mostly waiting for peers


def run(*arguments):
    """Runs the program; its output when it fails is the error."""
    done = subprocess.run([SLUICE, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"sluice {' '.join(map(str, arguments))}\n{done.stderr}")


def settings(strategy, steps):
    """The quick start under one strategy, as --set options."""
    values = {"parallel.strategies": json.dumps([strategy]), "train.steps": steps, "train.eval_every": 0,
              "checkpoint.every": 0, "log.tensorboard": "false", "log.trace_steps": json.dumps(list(range(steps)))}
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def step_times_ms(directory, field):
    """{step: milliseconds} of a run directory."""
    lines = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line[field] for line in lines if field in line}


def node_times_ms(directory, steps):
    """{kind: total milliseconds of all ranks} over the steps' timelines."""
    totals = collections.Counter()
    for step in steps:
        events = json.loads((directory / f"trace-{step}.json").read_text())["traceEvents"]
        for event in events:
            if event["ph"] == "X":
                totals[event["cat"]] += event["dur"] / 1e3
    return totals


class Comparison:
    """One strategy's profiles, runs and simulations."""

    def __init__(self, strategy):
        self.strategy = strategy
        self.predicted, self.measured = [], []
        self.predicted_of, self.measured_of = collections.Counter(), collections.Counter()

    def add_round(self, directory, seconds, steps):
        options = settings(self.strategy, steps)
        run("profile", "--config", CONFIG, "--nproc", RANKS, "--seconds", seconds, "--out",
            directory / "calibration.json", *options)
        calibrated = ["--set", f"parallel.calibration={directory / 'calibration.json'}"]
        run("train", "--config", CONFIG, "--nproc", RANKS, *options, *calibrated, "--set",
            f"log.dir={directory / 'real'}")
        run("simulate", "--config", CONFIG, "--ranks", RANKS, "--steps", steps, "--trace-steps",
            ",".join(map(str, range(steps))), "--out", directory / "simulated", *options, *calibrated)
        real = step_times_ms(directory / "real", "time_ms")
        simulated = step_times_ms(directory / "simulated", "time_ms")
        compared = range(WARM_UP_STEPS, steps)
        self.measured += [real[step] for step in compared]
        self.predicted += [simulated[step] for step in compared]
        self.measured_of += node_times_ms(directory / "real", compared)
        self.predicted_of += node_times_ms(directory / "simulated", compared)

    def errors(self):
        return [predicted / measured - 1 for predicted, measured in zip(self.predicted, self.measured)]

    def row(self):
        errors = self.errors()
        return (f"| `{self.strategy}` | {statistics.median(self.predicted):.0f} | "
                f"{statistics.median(self.measured):.0f} | {100 * statistics.median(errors):+.1f} % | "
                f"{100 * statistics.median(map(abs, errors)):.1f} % |")

    def kind_rows(self):
        for kind in self.measured_of:
            predicted, measured = self.predicted_of[kind], self.measured_of[kind]
            note = "waiting for the other rank included" if kind.startswith(EXCHANGES) else ""
            yield (f"| `{self.strategy}` | {kind} | {predicted:.1f} | {measured:.1f} | "
                   f"{100 * (predicted / measured - 1):+.1f} % | {note} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="profiles, runs and simulations of each strategy")
    parser.add_argument("--steps", type=int, default=6, help="steps of a run, the first not counted")
    parser.add_argument("--seconds", type=float, default=10, help="that a profile aims at")
    arguments = parser.parse_args()
    comparisons = [Comparison(strategy) for strategy in STRATEGIES]
    with tempfile.TemporaryDirectory() as temporary:
        for turn in range(arguments.rounds):
            for index, comparison in enumerate(comparisons):
                directory = pathlib.Path(temporary) / f"{turn}-{index}"
                directory.mkdir()
                comparison.add_round(directory, arguments.seconds, arguments.steps)
    print("| strategy | simulated ms | measured ms | error, median | of its size |\n|---|---|---|---|---|")
    print("\n".join(comparison.row() for comparison in comparisons))
    sizes = [abs(error) for comparison in comparisons for error in comparison.errors()]
    print(f"\nMedian size of the error over all steps: {100 * statistics.median(sizes):.1f} % (goal {100 * GOAL:.0f} %).\n")
    print("| strategy | nodes | simulated ms, all ranks and steps | measured ms | error | |\n|---|---|---|---|---|---|")
    print("\n".join(row for comparison in comparisons for row in comparison.kind_rows()))


if __name__ == "__main__":
    main()
