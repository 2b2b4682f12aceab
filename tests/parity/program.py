"""Drives the program from outside: corpora, configurations, runs and their metrics. Standard library only."""

import json
import math
import random
import shutil
import struct
import subprocess
from pathlib import Path

UINT16 = 8  # Megatron's code for a corpus of uint16 tokens


def zipf_documents(lengths, vocab, seed):
    """Documents of these lengths: tokens by Zipf's law, so that there is something to learn."""
    source = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(vocab)]
    return [source.choices(range(vocab), weights, k=length) for length in lengths]


def write_corpus(prefix, documents):
    """Megatron's indexed format: prefix.bin and prefix.idx, one sequence a document."""
    lengths = [len(document) for document in documents]
    pointers = [2 * sum(lengths[:i]) for i in range(len(lengths))]
    count = len(documents)
    with open(f"{prefix}.bin", "wb") as out:
        for document in documents:
            out.write(struct.pack(f"<{len(document)}H", *document))
    with open(f"{prefix}.idx", "wb") as out:
        out.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, UINT16, count, count + 1))
        out.write(struct.pack(f"<{count}i", *lengths))
        out.write(struct.pack(f"<{count}q", *pointers))
        out.write(struct.pack(f"<{count + 1}q", *range(count + 1)))


def to_toml(sections):
    """TOML of {section: {key: value}}; JSON's strings, numbers and lists are TOML's too."""
    lines = []
    for section, entries in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in entries.items()]
    return "\n".join(lines) + "\n"


def write_config(path, sections):
    path = Path(path)
    path.write_text(to_toml(sections))
    return path


def run(sluice, *arguments):
    """Standard output of one command; an error shows what the command said."""
    command = [str(sluice), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nexit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def plan(sluice, config, step, *arguments):
    return json.loads(run(sluice, "plan", "--config", config, "--step", step, "--json", *arguments))


def batch(sluice, config, step, documents, *arguments):
    """The token lists that this step trains on."""
    sequences = plan(sluice, config, step, *arguments)["sequences"]
    spans = [(s["document"], s.get("begin", 0), s["length"]) for s in sequences]
    return [documents[document][begin:begin + length] for document, begin, length in spans]


def train(sluice, config, run_directory, *arguments, ranks=1):
    """The lines of metrics.jsonl, one a step, of a fresh run. One rank needs no launcher."""
    shutil.rmtree(run_directory, ignore_errors=True)
    several = ["--nproc", ranks] if ranks > 1 else []
    run(sluice, "train", "--config", config, "--set", f"log.dir={json.dumps(str(run_directory))}", *several, *arguments)
    lines = (Path(run_directory) / "metrics.jsonl").read_text().splitlines()
    steps = [line for line in map(json.loads, lines) if "loss" in line]
    if any(step["fallback"] for step in steps):
        raise RuntimeError(f"{run_directory} did not run the planner's own plans")
    return steps


class Comparison:
    """Collects figures that must agree; `finish` ends the process with what did not."""

    def __init__(self):
        self.worst = {}
        self.faults = []

    def close(self, what, ours, theirs, tolerance):
        """Relative difference of two numbers, or of two lists element by element."""
        if not isinstance(ours, (list, tuple)):
            ours, theirs = [ours], [theirs]
        if len(ours) != len(theirs):
            self.faults.append(f"{what}: {len(ours)} values, expected {len(theirs)}")
            return
        differences = [abs(a - b) / max(abs(b), 1e-30) for a, b in zip(ours, theirs)]
        self.within(what, differences, tolerance)

    def within(self, what, differences, tolerance):
        """The largest of the differences; NaN is larger than all."""
        worst = max(differences, default=0.0, key=lambda d: (math.isnan(d), d))
        self.worst[what] = worst
        if not worst <= tolerance:
            self.faults.append(f"{what}: {worst:.2e} apart, allowed {tolerance:.0e}")

    def equal(self, what, ours, theirs):
        if ours != theirs:
            self.faults.append(f"{what}: {ours!r}, expected {theirs!r}")

    def finish(self):
        for what, difference in self.worst.items():
            print(f"{what}: at most {difference:.1e} apart")
        for fault in self.faults:
            print(f"FAULT {fault}")
        raise SystemExit(1 if self.faults else 0)
