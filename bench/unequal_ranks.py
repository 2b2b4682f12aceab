#!/usr/bin/env python3
"""What it is worth to real ranks to know that one of them is slow: a table in Markdown.

    bench/unequal_ranks.py [--part P] [--steps N] [--rounds R]

Two ranks, a core each, of which the second is held to a part P of its core by a control group from its beginning. Runs of the
same model and batches take turns: planned as if both were alike, with parallel.devices = "measured", and with int8 products too where
the slow rank needs them. Times are medians of a run's steps, which the machine's own moods move; $SLUICE names the program. Needs
root and two quiet cores.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "tests" / "fault_injection")]

from harness import make_documents, merged, to_toml, write_corpus  # noqa: E402
from slow import Quota  # noqa: E402

SLUICE = os.environ.get("SLUICE", str(ROOT / "build" / "sluice"))
WARM = 16  # steps that are left out: plans of the first count with what a probe says of devices
PERIOD_US = 5000  # in which the slow rank has its part: far below what a layer takes


def config(folder, name, steps, gemm_dtype="none", **parallel):
    run = folder / name
    settings = {"model": {"layers": 4, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn_hidden": 688, "vocab": 512},
                "data": {"train": [[str(folder / "corpus"), 1.0]], "context_length": 512, "tokens_per_step": 4096},
                "train": {"steps": steps, "threads": 1, "gemm_dtype": gemm_dtype}, "parallel": {"strategies": ["2x<1,1,1>"], **parallel},
                "log": {"dir": str(run), "tensorboard": False}}
    path = folder / f"{name}.toml"
    path.write_text(to_toml(merged(settings, {})))
    return path, run


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def median_times(path, run, part):
    """Of the steps of one run: measured and predicted, in milliseconds."""
    subprocess.run(["rm", "-rf", run], check=True)
    port = free_port()
    ranks = []
    for rank in range(2):
        told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port}
        begun = f"read go; exec taskset -c {rank} {SLUICE} train --config {path}"
        ranks.append(subprocess.Popen(["sh", "-c", begun], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
                                      env={**os.environ, **{name: str(value) for name, value in told.items()}}))
    quota = Quota(ranks[1].pid, part, PERIOD_US)
    for process in ranks:
        process.stdin.write("go\n")
        process.stdin.close()
    for process in ranks:
        process.wait()
    quota.stop()
    if any(process.returncode for process in ranks):
        sys.exit(f"the run {run.name} failed")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line][WARM:]
    return [statistics.median(line[key] for line in steps) for key in ("time_ms", "predicted_ms")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"The second rank has {options.part:.0%} of its core; milliseconds a step.\n")
    print("| round | as if alike | measured | alike over measured | predicted | measured over predicted | int8 products | measured over "
          "int8 | predicted | int8 over predicted |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        write_corpus(folder / "corpus", make_documents(count=400, longest=512))
        for number in range(options.rounds):
            alike, _ = median_times(*config(folder, "alike", options.steps), options.part)
            known, predicted = median_times(*config(folder, "measured", options.steps, devices="measured"), options.part)
            narrow, narrow_predicted = median_times(
                *config(folder, "narrow", options.steps, devices="measured", gemm_dtype="int8"), options.part)
            print(f"| {number + 1} | {alike:.0f} | {known:.0f} | {alike / known:.2f} | {predicted:.0f} | {known / predicted:.2f} | "
                  f"{narrow:.0f} | {known / narrow:.2f} | {narrow_predicted:.0f} | {narrow / narrow_predicted:.2f} |", flush=True)


if __name__ == "__main__":
    main()
