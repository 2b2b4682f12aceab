"""A step of reinforcement learning beside the released verl's own functions on transformers' model.

A run is stopped within a rollout; its checkpoint has the mini-batch that is next, and the model it is next for. What that step's
loss and gradient norm are is computed again: advantages, clipped losses, divergence and aggregate by verl's functions, gradients
by torch.
"""

import itertools
import json
import os
import pathlib
import subprocess
import tempfile
import types
import unittest

import numpy as np
import torch
import transformers
from verl.trainer.ppo import core_algos

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
group = 4
updates = 2
max_response = {most}
rewards = ["python:{folder}/low.py:score"]
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
# Of each algorithm verl's estimator and aggregate.
ALGORITHMS = {
    "grpo": ("grpo", "seq-mean-token-mean"),
    "dapo": ("grpo", "token-mean"),
    "dr_grpo": ("mean", "seq-mean-token-sum-norm"),
    "reinforce": ("rloo", "token-mean"),
}


def sluice(*arguments):
    done = subprocess.run([SLUICE, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise AssertionError(done.stderr)


def advantages(estimator, rewards, mask, index):
    scores = torch.zeros_like(mask)
    scores[:, 0] = torch.tensor(rewards, dtype=torch.float64)
    if estimator == "rloo":
        return core_algos.compute_rloo_outcome_advantage(scores, mask, index)[0]
    return core_algos.compute_grpo_outcome_advantage(scores, mask, index, norm_adv_by_std_in_grpo=estimator == "grpo")[0]


def padded(rows, width):
    return torch.tensor([list(row) + [0.0] * (width - len(row)) for row in rows], dtype=torch.float64)


class PolicyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        subprocess.run(["python3", ROOT / "examples/rl/sorting.py", cls.folder, "5"], check=True)
        lines = (cls.folder / "problems.jsonl").read_text().splitlines(keepends=True)[:60]
        (cls.folder / "problems.jsonl").write_text("".join(lines))
        (cls.folder / "low.py").write_text(LOW)
        sluice("corpus", "build", cls.folder / "problems.jsonl", "--chat", "--tokenizer", cls.folder / "tokenizer.json",
               "--out", cls.folder / "problems")
        (cls.folder / "run.toml").write_text(CONFIG.format(folder=cls.folder, most=MAX_RESPONSE))

    def step(self, algorithm, kl):
        """The mini-batch of the rollout's second update, the model before it, and its line of metrics."""
        run = self.folder / f"{algorithm}_{kl}"
        sluice("train", "--config", self.folder / "run.toml", "--nproc", 2, "--set", f'rl.algorithm="{algorithm}"', "--set",
               f"rl.kl={kl}", "--set", "train.steps=2", "--set", f'log.dir="{run}"')
        checkpoint = run / "checkpoints" / "step-1"
        (batch,) = json.loads((checkpoint / "manifest.json").read_text())["rollout"]
        sluice("export", checkpoint, "--out", run / "model")
        model = transformers.AutoModelForCausalLM.from_pretrained(run / "model", dtype=torch.float64)
        line = json.loads((run / "metrics.jsonl").read_text().splitlines()[1])
        return batch, model, line

    def log_probabilities(self, model, batch, width):
        rows = []
        for episode in batch:
            ids = torch.tensor([episode["tokens"]])
            logits = model(ids).logits[0, episode["prompt_tokens"] - 1:-1]
            own = torch.log_softmax(logits, -1).gather(1, ids[0, episode["prompt_tokens"]:, None])[:, 0]
            rows.append(torch.cat([own, torch.zeros(width - len(own), dtype=torch.float64)]))
        return torch.stack(rows)

    def check(self, algorithm, kl):
        batch, model, line = self.step(algorithm, kl)
        estimator, aggregate = ALGORITHMS[algorithm]
        counts = [len(episode["tokens"]) - episode["prompt_tokens"] for episode in batch]
        width = MAX_RESPONSE  # what seq-mean-token-sum-norm divides by
        mask = padded([[1.0] * count for count in counts], width)
        prompts = [tuple(episode["tokens"][:episode["prompt_tokens"]]) for episode in batch]
        index = np.array([place for place, (_, group) in enumerate(itertools.groupby(prompts)) for _ in group])
        expected = advantages(estimator, [episode["reward"] for episode in batch], mask, index)
        for row, episode in zip(expected, batch):
            self.assertAlmostEqual(row[0].item(), episode["advantage"], delta=1e-12)
        old = padded([episode["old"] for episode in batch], width)
        config = types.SimpleNamespace(clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.28 if algorithm == "dapo" else 0.2,
                                       get=lambda name, default: {"clip_ratio_c": 3.0}.get(name, default), global_batch_info={})
        log_p = self.log_probabilities(model, batch, width)
        loss, figures = core_algos.compute_policy_loss_vanilla(old, log_p, expected, mask, aggregate, config)
        if kl > 0:
            reference = padded([episode["reference"] for episode in batch], width)
            divergence = core_algos.kl_penalty(log_p, reference, "low_var_kl")
            loss = loss + kl * core_algos.agg_loss(divergence, mask, aggregate)
        loss.backward()
        norm = torch.sqrt(sum((parameter.grad**2).sum() for parameter in model.parameters())).item()
        self.assertGreater(figures["actor/pg_clipfrac"] + figures["actor/pg_clipfrac_lower"], 0, "nothing was clipped")
        # Models are exported in single precision.
        self.assertAlmostEqual(line["loss"], loss.item(), delta=1e-7 * max(1, abs(loss.item())))
        self.assertAlmostEqual(line["grad_norm"], norm, delta=1e-7 * norm)

    def test_algorithms(self):
        for algorithm in ALGORITHMS:
            with self.subTest(algorithm):
                self.check(algorithm, 0.0)

    def test_divergence(self):
        self.check("dapo", 0.3)


if __name__ == "__main__":
    unittest.main()
