"""Experts that are balanced while they train: by corrections that learn, by a loss over sequences or steps; resumed on other
ranks, and exported."""

import json
import pathlib
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "integration"))

from commands import CommandTest, call  # noqa: E402
from harness import read_safetensors  # noqa: E402

MODEL = TESTS / "data" / "parity" / "glm4_moe"
STEPS = 45
CONFIG = f"""
[model]
hf = "{MODEL}"
[data]
train = [["{MODEL}/corpus", 1.0]]
context_length = 64
tokens_per_step = 256
[train]
steps = {STEPS}
threads = 1
dtype = "float64"
moe_router_bias_update_rate = 0
[optimizer]
lr = 3e-3
warmup_steps = 5
decay = "constant"
[parallel]
strategies = ["<1,1,4,4,4>"]
calibration = "analytic"
[memory]
device_gib = 1.0
margin_gib = 0.1
[log]
tensorboard = false
"""
CORRECTED = ("--set", "train.moe_router_bias_update_rate=0.01")
OVER_STEPS = ("--set", "train.moe_aux_loss_coeff=0.02", "--set", 'train.moe_router_load_balancing_type="global_aux_loss"')
MEMORY = "mlp.gate.loads"


class Balance(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = cls.folder / "run.toml"
        cls.config.write_text(CONFIG)

    @classmethod
    def train(cls, name, ranks, *arguments):
        cls.done("train", "--config", cls.config, "--nproc", ranks, "--set", f'log.dir="{cls.folder}/{name}"', *arguments)
        return [json.loads(line) for line in (cls.folder / name / "metrics.jsonl").read_text().splitlines()]

    def test_the_busiest_lane_comes_down(self):
        """Over the mean one, in the last third of steps."""
        busiest = {}
        for name, arguments in {"left": (), "corrected": CORRECTED, "steps": OVER_STEPS,
                                "sequences": ("--set", "train.moe_aux_loss_coeff=0.02")}.items():
            last = [line["expert_load_imbalance"] for line in self.train(name, 4, *arguments)][-STEPS // 3:]
            busiest[name] = sum(last) / len(last)
        self.assertGreater(busiest["left"], 1.6)
        for name in ("corrected", "steps", "sequences"):
            self.assertLess(busiest[name], 1.45, busiest)

    def test_placed_experts_even_lanes_out_and_change_no_loss(self):
        """Visits say where experts lie; a copy of the most visited on each lane leaves nothing."""
        placing = ("--set", 'parallel.expert_placement="load"', "--set", "parallel.expert_placement_every=5")
        runs = {name: self.train(name, 4, "--set", "train.steps=20", *arguments)
                for name, arguments in {"in_order": (), "placed": placing,
                                        "copied": (*placing, "--set", "parallel.redundant_experts=1"),
                                        "together": ("--set", 'parallel.expert_placement="coactivation"', *placing[2:])}.items()}
        busiest = {name: sum(line["expert_load_imbalance"] for line in lines[10:]) for name, lines in runs.items()}
        self.assertLess(busiest["placed"], 0.97 * busiest["in_order"])
        self.assertLess(busiest["together"], busiest["in_order"])
        self.assertLess(busiest["copied"] / 10, 1.05)
        for name, lines in runs.items():
            for own, other in zip(lines, runs["in_order"], strict=True):
                for key in ("loss", "grad_norm"):
                    self.assertLess(abs(own[key] - other[key]), 1e-11 * abs(other[key]), (name, key, own["step"]))
        self.assertGreater(runs["copied"][-1]["pull_bytes"], runs["in_order"][-1]["pull_bytes"])

    def test_lanes_that_divide_experts_generate_what_one_rank_does(self):
        """Ids, and log-probabilities to 1e-11, where each lane has its part of the experts alone."""
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"ids": [3 + (7 * i + j) % 40 for j in range(length)]}) + "\n"
                                   for i, length in enumerate((1, 5, 30, 9, 2))))

        def generated(name, *arguments):
            self.done("generate", "--model", MODEL, "--prompts", prompts, "--out", self.folder / name, "--tokens", 20,
                      "--dtype", "float64", "--threads", 1, "--temperature", 0.9, "--samples", 2, "--seed", 3, *arguments)
            return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]
        alone = generated("alone.jsonl")
        for ranks, strategy in ((2, "<1,1,2,2,2>"), (4, "<1,1,4,4,4>"), (4, "<1,1,4,4,2>"), (4, "<2,1,2,2,2>"), (4, "2x<1,1,2,2,2>")):
            with self.subTest(strategy):
                for ours, theirs in zip(generated("divided.jsonl", "--nproc", ranks, "--strategy", strategy), alone, strict=True):
                    self.assertEqual(ours["ids"], theirs["ids"])
                    for own, other in zip(ours["logprobs"], theirs["logprobs"], strict=True):
                        self.assertAlmostEqual(own, other, delta=1e-11)
        refused = call("generate", "--model", MODEL, "--prompts", prompts, "--out", self.folder / "refused.jsonl", "--nproc", 2,
                       "--strategy", "<1,1,2,2>")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("or that divide experts alone, as <1,1,2,2,2> does", refused.stderr)

    def test_more_copies_than_experts_are_refused(self):
        refused = call("train", "--config", self.config, "--set", "parallel.redundant_experts=5")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("parallel.redundant_experts is 5, but the model has 8 experts", refused.stderr)

    def test_counts_are_resumed_on_other_ranks(self):
        counted = (*CORRECTED, *OVER_STEPS, "--set", "checkpoint.every=12")
        whole = self.train("whole", 4, *counted, "--set", "train.steps=24")
        self.train("half", 4, *counted, "--set", "train.steps=12")
        rest = self.train("half", 2, *counted, "--set", "train.steps=24", "--resume", "auto", "--set",
                          'parallel.strategies=["<1,1,2,2,2>"]')
        for own, other in zip(rest, whole, strict=True):
            for key in ("loss", "grad_norm"):
                self.assertLess(abs(own[key] - other[key]), 1e-9 * abs(other[key]), (key, own["step"]))

    def test_folders_have_corrections_and_no_memory(self):
        self.train("exported", 2, *CORRECTED, *OVER_STEPS, "--set", "train.steps=4", "--set", "checkpoint.every=4", "--set",
                   'parallel.strategies=["<1,1,2,2,2>"]')
        self.done("export", self.folder / "exported", "--out", self.folder / "model")
        before, after = (read_safetensors(path / "model.safetensors") for path in (MODEL, self.folder / "model"))
        self.assertEqual(set(before), set(after))
        self.assertFalse(any(MEMORY in name for name in after))
        corrections = [name for name in after if name.endswith("e_score_correction_bias")]
        self.assertTrue(corrections)
        for name in corrections:
            self.assertNotEqual(before[name], after[name])


if __name__ == "__main__":
    unittest.main()
