"""What must hold after a fault: every line of metrics.jsonl and every parameter as if nothing had happened, no
checkpoint that is not whole, no file that does not belong there."""

import hashlib
import json
import re

from harness import checkpoint_tensors, committed_steps
from job import Broken

# What a clock, an allocator or a lost rank decides; everything else in metrics.jsonl is the same in every repetition.
MEASURED = re.compile(r"_ms$|_slowdown$|^rank_|^alarms$|^critical_path$|^slowest_rank$|^tokens_per_s$|^peak_bytes$|^restarts$|^ranks$|^snapshot_bytes$")

# The files of a run directory.
BELONGS = re.compile(r"config\.toml|calibration\.json|members\.json|metrics\.jsonl|report\.html|rank-\d+\.log"
                     r"|lock/(\d+|tie-[0-9a-f]+-\d+)|events\.out\.tfevents\.[\w.-]+|trace-\d+(-predicted)?\.json"
                     r"|checkpoints/step-\d+/(manifest\.json|rank-\d{4}\.safetensors)")


def lines_of(run):
    """The lines of metrics.jsonl without what was measured."""
    lines = []
    for number, text in enumerate((run / "metrics.jsonl").read_text().splitlines(), 1):
        try:
            line = json.loads(text)
        except ValueError as error:
            raise Broken(f"{run.name}/metrics.jsonl:{number} is no JSON: {text[:60]!r}") from error
        lines.append({key: value for key, value in line.items() if not MEASURED.search(key)})
    return lines


def digest_of(run, step):
    """A hash of all parameters and states in the checkpoint after `step` steps."""
    hashed = hashlib.sha256()
    for name, values in sorted(checkpoint_tensors(run, step).items()):
        hashed.update(name.encode() + values.tobytes())
    return hashed.hexdigest()


def newest(run):
    """The step of the newest committed checkpoint; 0 without any."""
    return max(committed_steps(run), default=0)


class Undisturbed:
    """What the same run does when nothing happens to it."""

    def __init__(self, run):
        self.lines = lines_of(run)
        self.steps = max(line["step"] for line in self.lines) + 1
        self.digest = digest_of(run, self.steps)
        self.evaluated = [line["step"] for line in self.lines if "validation_loss" in line]
        self.times_s = {}
        for text in (run / "metrics.jsonl").read_text().splitlines():
            line = json.loads(text)
            if "time_ms" in line:
                self.times_s[line["step"]] = line["time_ms"] / 1e3
        self.traces = {step: self.read_trace(run / f"trace-{step}.json") for step in range(self.steps)}

    @staticmethod
    def read_trace(path):
        """[(label, begin, end)] in seconds of what any rank did in a step."""
        if not path.exists():
            return []
        return [(f"{event['cat']} {event['name']}", event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6)
                for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]

    def intervals(self, step, mark):
        """[(begin, end)] in seconds after the step's begin of what a pattern finds in its timeline."""
        return [(begin, end) for label, begin, end in self.traces[step] if re.search(mark, label)]

    def seconds_of(self, step):
        return self.times_s[step]

    def lines_before(self, step):
        """How many lines metrics.jsonl has when all before `step` is done."""
        return sum(line["step"] < step for line in self.lines)

    def compare(self, run):
        """Broken where a finished run differs."""
        lines = lines_of(run)
        for number, (line, expected) in enumerate(zip(lines, self.lines), 1):
            for key in sorted(line.keys() | expected.keys()):
                if line.get(key) != expected.get(key):
                    raise Broken(f"metrics.jsonl:{number} has {key} {line.get(key)}, undisturbed "
                                 f"{expected.get(key)} (step {expected['step']})")
        if len(lines) != len(self.lines):
            raise Broken(f"metrics.jsonl has {len(lines)} lines, undisturbed {len(self.lines)}")
        if newest(run) != self.steps:
            raise Broken(f"the last checkpoint is of step {newest(run)}, undisturbed {self.steps}")
        if digest_of(run, self.steps) != self.digest:
            raise Broken(f"the parameters after {self.steps} steps differ")


def files_left(run, keep=2):
    """Broken for files of a finished run that do not belong there."""
    names = [str(path.relative_to(run)) for path in run.rglob("*") if not path.is_dir()]
    strange = sorted(name for name in names if not BELONGS.fullmatch(name))
    if strange:
        raise Broken(f"left over in the run directory: {', '.join(strange)}")
    saved = [path.name for path in (run / "checkpoints").glob("*")]
    if len(saved) > keep:
        raise Broken(f"{len(saved)} checkpoints are kept, not {keep}: {', '.join(sorted(saved))}")
