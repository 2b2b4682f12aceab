"""What a small model learns by reward alone: digits sorted, after a teacher who puts sevens last (docs/reinforcement.md).

For each seed problems are drawn, a teacher's solutions imitated, and the result trained on by several algorithms, and by DAPO
with one of its four parts off at a time. Told are the likeliest answers' accuracy on problems that are in neither file, before
and after, and how many of the last rollouts' sampled responses were right, also where all had said as many tokens as the one
that said fewest.

PPO's variant is never told which answers are right: a reward model learns that from pairs, and a critic begins as the reward model.
Its responses sampled are scored by that model, so of PPO only the held-out problems are told, before and after.

    make rl           one seed, DAPO and PPO with a learnt reward
    make bench-rl     three seeds, all of them; writes bench/results/reinforcement.{json,md}
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from seeded import arguments_of

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "rl"
VARIANTS = {
    "dapo": {},
    "dapo without clip-higher": {"rl.clip_high": 0.2},
    "dapo without dynamic sampling": {"rl.dynamic_sampling": '"no"'},
    "dapo without the token-level loss": {"rl.loss_agg_mode": '"seq-mean-token-mean"'},
    "dapo without overlong shaping": {"rl.overlong_buffer": 0},
    "grpo": {"rl.algorithm": '"grpo"'},
    "dr_grpo": {"rl.algorithm": '"dr_grpo"'},
    "reinforce": {"rl.algorithm": '"reinforce"'},
}
LEARNT = "ppo, learnt reward"
LAST_ROLLOUTS = 5


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    return done


class Seed:
    """One seed's corpora and imitator."""

    def __init__(self, args, folder, seed):
        self.args, self.folder, self.seed = args, folder, seed
        run([sys.executable, EXAMPLES / "sorting.py", folder, seed])
        for name in ("lessons", "problems", "held_out"):
            run([args.sluice, "corpus", "build", folder / f"{name}.jsonl", "--chat", "--tokenizer", folder / "tokenizer.json",
                 "--out", folder / name])
        self.train("base.toml", "base", {"data.train": f'[["{folder}/lessons/corpus", 1.0]]'})
        run([args.sluice, "export", folder / "base", "--out", folder / "model"])
        self.before = self.held_out("before", self.folder / "model")

    def train(self, config, name, settings):
        settings = {"data.validation": f'["{self.folder}/held_out/corpus"]', "log.dir": f'"{self.folder}/{name}"',
                    "data.seed": self.seed, **settings}
        command = [self.args.sluice, "train", "--config", EXAMPLES / config, "--nproc", self.args.nproc]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        run(command, cwd=ROOT)
        return [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]

    def held_out(self, name, model):
        """The share of held-out problems that a model's likeliest answers solve."""
        return self.reinforce(name, {"optimizer.lr": 0, "train.steps": 1, "model.hf": f'"{model}"'})["held_out"]

    def learnt_reward(self):
        """PPO on the scores of a model that learnt from pairs; the held-out problems' share."""
        pairs = self.folder / "pairs"
        run([self.args.sluice, "corpus", "build", self.folder / "pairs.jsonl", "--pairs", "--tokenizer",
             self.folder / "tokenizer.json", "--out", pairs])
        self.train("reward.toml", "reward", {"model.hf": f'"{self.folder}/model"', "data.train": f'[["{pairs}/chosen/corpus", 1.0]]',
                                             "data.validation": "[]", "head.rejected": f'["{pairs}/rejected/corpus"]'})
        run([self.args.sluice, "export", self.folder / "reward", "--out", self.folder / "scorer"])
        lines = self.train("ppo.toml", "ppo", {
            "model.hf": f'"{self.folder}/model"', "data.train": f'[["{self.folder}/problems/corpus", 1.0]]',
            "rl.reward": f'["model:{self.folder}/scorer"]', "rl.critic": f'"{self.folder}/scorer"'})
        run([self.args.sluice, "export", self.folder / "ppo", "--out", self.folder / "ppo_model"])
        scores = [line["learnt_reward"] for line in lines if "learnt_reward" in line]
        return {"held_out": self.held_out("after_ppo", self.folder / "ppo_model"), "first_score": scores[0],
                "last_score": statistics.mean(scores[-LAST_ROLLOUTS:]),
                "tokens": sum(line.get("response_tokens", 0) for line in lines)}

    def reinforce(self, name, settings):
        lines = self.train("sorting.toml", name, {"model.hf": f'"{self.folder}/model"',
                                                  "data.train": f'[["{self.folder}/problems/corpus", 1.0]]', **settings})
        rollouts, tokens = [], 0
        for line in lines:
            if "sampling_rounds" in line:
                tokens += line["response_tokens"]
                rollouts.append({"reward": line["reward"], "tokens": tokens, "ms": line["rollout_ms"] + line["reward_ms"]})
        return {"held_out": [line["reward"] for line in lines if "validation_loss" in line][-1], "rollouts": rollouts,
                "update_ms": sum(line["time_ms"] for line in lines if "time_ms" in line)}


def sampled(result, most_tokens=None):
    rewards = [rollout["reward"] for rollout in result["rollouts"] if most_tokens is None or rollout["tokens"] <= most_tokens]
    return statistics.mean(rewards[-LAST_ROLLOUTS:])


def spread(values):
    return f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def table(results, before):
    learnt = results.get(LEARNT, [])
    results = {name: seeds for name, seeds in results.items() if name != LEARNT}
    lines = ["| | held out, greedy | sampled, last rollouts | sampled, at equal tokens | tokens said |",
             "| --- | --- | --- | --- | --- |",
             f"| the imitator | {spread(before)} | | | |"]
    fewest = [min((results[name][i]["rollouts"][-1]["tokens"] for name in results), default=0) for i in range(len(before))]
    for name, seeds in results.items():
        lines.append(f"| {name} | {spread([seed['held_out'] for seed in seeds])} | {spread([sampled(seed) for seed in seeds])} | "
                     f"{spread([sampled(seed, most) for seed, most in zip(seeds, fewest)])} | "
                     f"{statistics.mean(seed['rollouts'][-1]['tokens'] for seed in seeds) / 1e3:.0f}K |")
    if learnt:
        lines.append(f"| {LEARNT} | {spread([seed['held_out'] for seed in learnt])} | | | "
                     f"{statistics.mean(seed['tokens'] for seed in learnt) / 1e3:.0f}K |")
    return "\n".join(lines)


def main():
    args = arguments_of([*VARIANTS, LEARNT])
    results, before = {name: [] for name in args.only}, []
    for seed in range(1, args.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            problems = Seed(args, Path(folder), seed)
            before.append(problems.before)
            print(f"seed {seed}: a teacher imitated; held out, greedy: {problems.before:.3f} right", flush=True)
            for name in args.only:
                if name == LEARNT:
                    result = problems.learnt_reward()
                    results[name].append(result)
                    print(f"seed {seed}: {name}: held out, greedy: {result['held_out']:.3f}; the model's score of what is sampled "
                          f"{result['first_score']:.2f} to {result['last_score']:.2f}", flush=True)
                    continue
                result = problems.reinforce(name.replace(" ", "_"), VARIANTS[name])
                results[name].append(result)
                print(f"seed {seed}: {name}: held out, greedy: {result['held_out']:.3f}; sampled {sampled(result):.3f}; "
                      f"{result['rollouts'][-1]['tokens']} tokens said; rollouts and rewards "
                      f"{sum(rollout['ms'] for rollout in result['rollouts']) / 1e3:.1f} s, updates "
                      f"{result['update_ms'] / 1e3:.1f} s", flush=True)
    print(table(results, before))
    if args.out:
        out = Path(args.out)
        out.write_text(json.dumps({"before": before, "results": results}) + "\n")
        out.with_suffix(".md").write_text(
            "# Reinforcement learning on sorted digits\n\nWritten by `make bench-rl`: mean (least to most) of "
            f"{args.seeds} seeds, {args.nproc} ranks; see [reinforcement](../../docs/reinforcement.md).\n\n"
            + table(results, before) + "\n")


if __name__ == "__main__":
    main()
