"""A step of reinforcement learning beside the released verl's own functions on transformers' model.

A run is stopped within a rollout; its checkpoint has the mini-batch that is next, and the model it is next for. What that step's
loss and gradient norm are is computed again: advantages, clipped losses, divergence and aggregate by verl's functions, gradients
by torch.
"""

import itertools
import types
import unittest

import numpy as np
import torch
from policy import MAX_RESPONSE, PolicyTest, gradient_norm, padded
from verl.trainer.ppo import core_algos

# Of each algorithm verl's estimator and aggregate.
ALGORITHMS = {
    "grpo": ("grpo", "seq-mean-token-mean"),
    "dapo": ("grpo", "token-mean"),
    "dr_grpo": ("mean", "seq-mean-token-sum-norm"),
    "reinforce": ("rloo", "token-mean"),
}


def advantages(estimator, rewards, mask, index):
    scores = torch.zeros_like(mask)
    scores[:, 0] = torch.tensor(rewards, dtype=torch.float64)
    if estimator == "rloo":
        return core_algos.compute_rloo_outcome_advantage(scores, mask, index)[0]
    return core_algos.compute_grpo_outcome_advantage(scores, mask, index, norm_adv_by_std_in_grpo=estimator == "grpo")[0]


class VerlTest(PolicyTest):
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
        self.assertGreater(figures["actor/pg_clipfrac"] + figures["actor/pg_clipfrac_lower"], 0, "nothing was clipped")
        self.assert_step(line, loss.item(), gradient_norm(model))

    def test_algorithms(self):
        for algorithm in ALGORITHMS:
            with self.subTest(algorithm):
                self.check(algorithm, 0.0)

    def test_divergence(self):
        self.check("dapo", 0.3)


if __name__ == "__main__":
    unittest.main()
