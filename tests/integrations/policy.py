"""Runs of reinforcement and preference learning that end within a rollout, whose next step others compute again."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch
import transformers

SLUICE = os.environ.get("SLUICE", "build/sluice")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MAX_RESPONSE = 20
CONFIG = """
[model]
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn_hidden = 48
vocab = 14
[data]
train = [["{folder}/problems/corpus", 1.0]]
context_length = 64
[train]
threads = 1
dtype = "float64"
[rl]
prompts_per_step = 8
num_generations = 4
updates_per_rollout = 2
max_completion_length = {most}
reward = ["python:{folder}/low.py:score"]
dual_clip = 3.0
[optimizer]
lr = 3e-2
warmup_steps = 1
decay = "constant"
[parallel]
strategies = ["1x<1,1,2>"]
calibration = "analytic"
[memory]
device_gib = 1.0
margin_gib = 0.1
[checkpoint]
every = 1
keep = 9
"""
LOW = """
def score(prompt, response, reference):
    words = response.split()
    return sum(word in "01234" for word in words) / max(len(words), 1)
"""


def sluice(*arguments):
    done = subprocess.run([SLUICE, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise AssertionError(done.stderr)


def padded(rows, width):
    return torch.tensor([list(row) + [0.0] * (width - len(row)) for row in rows], dtype=torch.float64)


def gradient_norm(model):
    return torch.sqrt(sum((parameter.grad**2).sum() for parameter in model.parameters())).item()


class PolicyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        subprocess.run(["python3", ROOT / "examples/rl/sorting.py", cls.folder, "5"], check=True)
        cls.lines = (cls.folder / "problems.jsonl").read_text().splitlines(keepends=True)
        cls.build("problems", cls.lines[:60])
        (cls.folder / "low.py").write_text(LOW)
        (cls.folder / "run.toml").write_text(CONFIG.format(folder=cls.folder, most=MAX_RESPONSE))

    @classmethod
    def build(cls, name, lines):
        (cls.folder / f"{name}.jsonl").write_text("".join(lines))
        sluice("corpus", "build", cls.folder / f"{name}.jsonl", "--chat", "--tokenizer", cls.folder / "tokenizer.json",
               "--out", cls.folder / name)

    @classmethod
    def run_of(cls, name, steps=2, config="run.toml", **settings):
        """A run's folder."""
        run = cls.folder / name
        settings = {"train.steps": steps, "log.dir": f'"{run}"', **{key.replace("__", "."): value for key, value in settings.items()}}
        sluice("train", "--config", cls.folder / config, "--nproc", 2,
               *(part for key, value in settings.items() for part in ("--set", f"{key}={value}")))
        return run

    @staticmethod
    def model_after(run, step):
        """As transformers has it, in double precision; exported in single."""
        sluice("export", run / "checkpoints" / f"step-{step}", "--out", run / f"model-{step}")
        return transformers.AutoModelForCausalLM.from_pretrained(run / f"model-{step}", dtype=torch.float64)

    @staticmethod
    def line_of(run, step):
        return json.loads((run / "metrics.jsonl").read_text().splitlines()[step])

    def step(self, algorithm, kl):
        """The mini-batch of the rollout's second update, the model before it, and its line of metrics."""
        run = self.run_of(f"{algorithm}_{kl}", rl__algorithm=f'"{algorithm}"', rl__kl=kl)
        (batch,) = json.loads((run / "checkpoints" / "step-1" / "manifest.json").read_text())["rollout"]["batches"]
        return batch, self.model_after(run, 1), self.line_of(run, 1)

    def assert_step(self, line, loss, norm):
        # Models are exported in single precision.
        self.assertAlmostEqual(line["loss"], loss, delta=1e-7 * max(1, abs(loss)))
        self.assertAlmostEqual(line["grad_norm"], norm, delta=1e-7 * norm)
