"""How much of its time an elastic run trains while a rank is killed each minute, and how long from a kill to the next step.

    elastic_time.py [--config run.toml] [--set section.key=value]... [--ranks 8] [--minutes 30] [--results FOLDER]
    elastic_time.py --state-gib 1 --ranks 2 --minutes 10      a lost rank with a large state

Without a configuration: the quick start's model (4 layers of 128, 1 million parameters), 4,096 tokens a step of random
walks of up to 2,048, strategies proposed.
Kills take turns: a worker, then a whole rank (supervisor and worker), which the launcher replaces. Time is that of steps
that count: the sum of time_ms in metrics.jsonl, in which a step that was repeated stands once, over the wall time between
the first line and the last. An undisturbed run of a tenth of the time, before, has the same ratio beside.
--state-gib: a model of four layers so wide that each rank owns so much of parameters, moments and gradients. Goals: the next
step behind a lost rank within 3 s beside its own time at 1 GiB, within 10 s at 5 GiB. Snapshots take three times as much
again, so 5 GiB on two ranks want 64 GiB of memory.
$SLUICE names the program.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration"))

from harness import children, hardware, make_documents, merged, rank_processes, revision, to_toml, write_corpus

QUICK_START = tomllib.loads((pathlib.Path(__file__).resolve().parent.parent / "examples" / "quickstart.toml").read_text())


GOALS_S = {1: 3, 5: 10}   # by GiB of state a rank: to the end of the next step, beside that step's own time
BYTES_OF_PARAMETER = 16   # that its owner has: master, two moments, gradient


def shape_of(state_gib, ranks):
    """Four layers whose parameters make so much state on each of the ranks, and steps that are short beside them."""
    layers, hidden = 4, 1024
    wanted = state_gib * 2**30 * ranks / BYTES_OF_PARAMETER
    attention = layers * 4 * hidden * hidden
    width = max(64, int((wanted - attention) / (layers * 3 * hidden)) // 64 * 64)
    return {"model.layers": layers, "model.hidden": hidden, "model.heads": 8, "model.kv_heads": 8, "model.ffn_hidden": width,
            "data.context_length": 64, "data.tokens_per_step": 64 * ranks}


def write_run(folder, state_gib, ranks):
    """The configuration that stands in for one, and its corpus."""
    write_corpus(folder / "corpus", make_documents(count=400, longest=64 if state_gib else 2048))
    changes = {"data.train": [[str(folder / "corpus"), 1.0]], "data.validation_fraction": 0.0, "data.tokens_per_step": 4096,
               "train.eval_every": 0, "parallel.strategies": "auto", "checkpoint.every": 0, "log.trace_steps": [],
               "log.tensorboard": False} | (shape_of(state_gib, ranks) if state_gib else {})
    path = folder / "run.toml"
    path.write_text(to_toml(merged(QUICK_START, changes)))
    return str(path)


def steps_of(run):
    try:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    except (OSError, ValueError):
        return []
    return [line for line in lines if "loss" in line]


def newest_of(run):
    """(step, epoch) of the newest whole line of a step: the file may be long."""
    try:
        with open(run / "metrics.jsonl", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")[:-1]
    except OSError:
        return -1, -1
    for line in reversed(lines):
        if line.startswith("{\"") and '"loss"' in line:
            found = json.loads(line)
            return found["step"], found["restarts"]
    return -1, -1


class Run:
    """A run under way."""

    def __init__(self, options, folder, name):
        self.path = folder / name
        settings = [*options.set, f"log.dir={self.path}", "train.steps=10000000", "elastic.enabled=true"]
        words = [word for setting in settings for word in ("--set", setting)]
        self.process = subprocess.Popen([os.environ.get("SLUICE", "build/sluice"), "train", "--config", options.config,
                                         "--nproc", str(options.ranks), *words], stdout=subprocess.DEVNULL,
                                        stderr=open(folder / f"{name}.log", "w"))
        self.await_step(3)

    def newest(self):
        return newest_of(self.path)[0]

    def await_step(self, step):
        while self.newest() < step:
            if self.process.poll() is not None:
                sys.exit(f"elastic_time: the run ended with {self.process.returncode}: {self.path}.log")
            time.sleep(0.02)
        return time.monotonic()

    def kill(self, chance, whole):
        """Kills a worker, or a rank with it; seconds until a step is done that was not before."""
        supervisors = rank_processes(self.process.pid)
        victim = supervisors[chance.choice(sorted(supervisors))]
        worker = children(victim)[:1]
        begin, (before, epoch) = time.monotonic(), newest_of(self.path)
        for process in [victim] if whole else worker:
            os.kill(process, signal.SIGKILL)
        while newest_of(self.path)[1] <= epoch:
            time.sleep(0.02)
        first = time.monotonic() - begin
        return first, self.await_step(before + 1) - begin

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def share(run, begin, end, first):
    """Of the time between two moments: that of the steps from `first` on."""
    steps = [line["time_ms"] / 1e3 for line in steps_of(run.path) if line["step"] > first]
    return sum(steps) / (end - begin), len(steps), statistics.median(steps)


def measure(options, folder):
    chance = random.Random(options.seed)
    plain = Run(options, folder, "undisturbed")
    begin, first = time.monotonic(), plain.newest()
    time.sleep(6 * options.minutes)
    undisturbed = share(plain, begin, plain.await_step(plain.newest() + 1), first)
    plain.stop()
    run = Run(options, folder, "killed")
    begin, first = time.monotonic(), run.newest()
    kills = []
    for number in range(options.minutes):
        time.sleep(max(0, begin + 60 * (number + 0.5) - time.monotonic()))
        kills.append((number % 2 == 1, *run.kill(chance, number % 2 == 1)))
        print(f"kill {number}: {'a rank' if kills[-1][0] else 'a worker'}, next step after {kills[-1][1]:.2f} s, all made up for "
              f"after {kills[-1][2]:.2f} s", flush=True)
    time.sleep(max(0, begin + 60 * options.minutes - time.monotonic()))
    disturbed = share(run, begin, run.await_step(run.newest() + 1), first)
    run.stop()
    return undisturbed, disturbed, kills


def row(name, measured):
    return f"| {name} | {100 * measured[0]:.1f} % | {measured[1]} | {1e3 * measured[2]:.0f} ms |"


def page(options, undisturbed, disturbed, kills):
    given = [*(["--config", options.given] if options.given else []),
             *(["--state-gib", str(options.state_gib)] if options.state_gib else []), *(word for one in options.set for word in ("--set", one))]
    lines = ["# Elastic runs", "", f"`bench/elastic_time.py --minutes {options.minutes} --ranks {options.ranks} "
             f"{' '.join(given)}` at {revision()} on {hardware()}, load "
             f"{os.getloadavg()[2]:.0f}.", "", "| run | time in steps that count | steps | median step |", "| --- | --- | --- | --- |",
             row("undisturbed", undisturbed), row(f"{len(kills)} kills, one a minute", disturbed), "",
             f"Effective training time: {100 * disturbed[0] / undisturbed[0]:.1f} % of the undisturbed run's.", "",
             "| killed | to the end of the next step (median, most) | to the first step that was not done before |",
             "| --- | --- | --- |"]
    for whole, name in ((False, "a worker"), (True, "a rank, replaced")):
        some = [kill for kill in kills if kill[0] == whole]
        if some:
            lines.append(f"| {name} | " + " | ".join(f"{statistics.median(kill[at] for kill in some):.2f} s, "
                                                    f"{max(kill[at] for kill in some):.2f} s" for at in (1, 2)) + " |")
    if options.state_gib:
        # The step itself is no part of what a loss costs.
        cost = statistics.median(kill[1] for kill in kills if kill[0]) - undisturbed[2] if any(kill[0] for kill in kills) else None
        goal = GOALS_S.get(options.state_gib)
        lines += ["", f"A lost rank with {options.state_gib} GiB of state costs " + ("?" if cost is None else f"{cost:.2f} s") +
                  " beside the next step" + (f" (goal {goal} s)." if goal else ".")]
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", dest="given")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--state-gib", type=int, default=0, help="of each rank; 0: the quick start's model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=pathlib.Path, help="write elastic.md, or elastic_1_gib.md of 1 GiB, here")
    options = parser.parse_args()
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sluice-elastic-", ignore_cleanup_errors=True) as folder:
        options.config = options.given or write_run(pathlib.Path(folder), options.state_gib, options.ranks)
        written = page(options, *measure(options, pathlib.Path(folder)))
    print(written)
    if options.results:
        (options.results / f"elastic{f'_{options.state_gib}_gib' if options.state_gib else ''}.md").write_text(written)


if __name__ == "__main__":
    main()
