"""Rewards that a model gives, and PPO with a critic: the same numbers under every layout, resumed, and wrong models named."""

import json
import subprocess
import sys
import unittest

import reinforcement_test  # whose classes are no tests of this program
from reinforcement_test import CONFIG, ROOT, TESTS, write_problems

sys.path.insert(0, str(TESTS / "integration"))

from commands import CommandTest  # noqa: E402
from harness import write_corpus  # noqa: E402

# As reinforcement_test's, but with no functions of texts: pairs of layouts of updates and rollouts.
LAYOUTS = {
    "tensor": (2, '["1x<2,1,1>"]', ""),
    "stages": (2, '["1x<1,2,1>"]', "<2,1,1>"),
    "shared": (4, '["1x<1,1,4,4>", "1x<2,1,1> + 2x<1,1,1>"]', "<2,2,1>"),
}
SHAPE = ["layers = 2", "hidden = 32", "heads = 4", "kv_heads = 2", "ffn_hidden = 48", "vocab = 14"]


class LearntRewards(CommandTest):
    FIGURES = ("loss", "reward", "learnt_reward", "grad_norm", "entropy", "reference_kl", "validation_loss", "response_tokens",
               "value_loss", "critic_grad_norm", "value_clip_fraction")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_problems(cls)
        cls.write_pairs()
        cls.make_model("scorer", "reward", rejected=f'["{cls.folder}/pairs/rejected/corpus"]', pairs_per_step=8)
        text = CONFIG.format(folder=cls.folder)
        reward = text[text.index("reward = ["):].splitlines()[0]
        (cls.folder / "run.toml").write_text(text.replace(reward, f'reward = ["model:{cls.folder}/scorer"]'))
        cls.expected = cls.train("one", 1)

    @classmethod
    def write_pairs(cls):
        pairs = []
        for line in (cls.folder / "problems.jsonl").read_text().splitlines():
            question, answer = (message["content"] for message in json.loads(line)["messages"])
            pairs.append({"prompt": question, "chosen": answer, "rejected": " ".join(reversed(answer.split())) + " ;"})
        (cls.folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
        cls.done("corpus", "build", cls.folder / "pairs.jsonl", "--pairs", "--tokenizer", cls.folder / "tokenizer.json",
                 "--out", cls.folder / "pairs")

    @classmethod
    def make_model(cls, name, kind, corpus="pairs/chosen", vocab=14, **head):
        """A folder of a model with such a head, trained for a few steps; kind none: with a vocabulary."""
        shape = [line if not line.startswith("vocab") else f"vocab = {vocab}" for line in SHAPE]
        lines = ["[model]", *shape, "[data]", f'train = [["{cls.folder}/{corpus}/corpus", 1.0]]', "context_length = 64",
                 "[train]", "steps = 4", "threads = 1", "[head]", f'kind = "{kind}"', *(f"{key} = {value}" for key, value in head.items()),
                 "[optimizer]", "lr = 1e-2", "warmup_steps = 1", "[parallel]", 'strategies = ["<1,1,1>"]',
                 'calibration = "analytic"', "[memory]", "device_gib = 1.0", "margin_gib = 0.1", "[log]",
                 f'dir = "{cls.folder}/{name}_run"', "tensorboard = false"]
        (cls.folder / f"{name}.toml").write_text("\n".join(lines) + "\n")
        cls.done("train", "--config", cls.folder / f"{name}.toml", "--nproc", 1)
        cls.done("export", cls.folder / f"{name}_run", "--out", cls.folder / name, "--dtype", "float32")

    # As reinforcement_test's.
    arguments = classmethod(reinforcement_test.Reinforcement.arguments.__func__)
    lines = classmethod(reinforcement_test.Reinforcement.lines.__func__)
    train = classmethod(reinforcement_test.Reinforcement.train.__func__)
    ended = staticmethod(reinforcement_test.Reinforcement.ended)
    refused = reinforcement_test.Reinforcement.refused
    lose_a_rank = reinforcement_test.Reinforcement.lose_a_rank

    def assert_same(self, lines, expected, tolerance=1e-11):
        self.assertEqual(len(lines), len(expected))
        for own, other in zip(lines, expected, strict=True):
            for key in self.FIGURES:
                self.assertEqual(key in own, key in other, key)
                if key in own:
                    self.assertLess(abs(own[key] - other[key]), tolerance * max(1, abs(other[key])), (key, own["step"]))

    def test_every_layout_learns_the_same_of_a_model(self):
        self.assertEqual(self.expected[0]["reward"], self.expected[0]["learnt_reward"])
        self.assertNotIn("accuracy", self.expected[0])
        for name, (ranks, strategies, rollouts) in LAYOUTS.items():
            with self.subTest(name):
                self.assert_same(self.train(name, ranks, parallel__strategies=strategies, parallel__select='"cycle"',
                                            rl__rollout_strategy=f'"{rollouts}"'), self.expected)

    def test_the_longest_text_may_be_any_pairs_worse_one(self):
        """Tables over positions reach as far, also where the pairs that planning looks at (of 32 steps) are all shorter."""
        texts = [[1 + (i + j) % 9 for j in range(6 + i % 4)] for i in range(150)]
        write_corpus(self.folder / "better", texts)
        longest = []
        for long in (3, 77, 148):  # in any order one at least is not among the first 64
            write_corpus(self.folder / "worse", [text * 6 if i == long else text for i, text in enumerate(texts)])
            settings = {"data.train": f'[["{self.folder}/better", 1.0]]', "train.steps": 75, "head.pairs_per_step": 2,
                        "head.rejected": f'["{self.folder}/worse"]', "log.dir": f'"{self.folder}/long_{long}"'}
            self.done("train", "--config", self.folder / "scorer.toml", "--nproc", 1,
                      *(part for key, value in settings.items() for part in ("--set", f"{key}={value}")))
            longest.append(max(line["tokens"] for line in self.lines(f"long_{long}")))
        self.assertGreater(max(longest), 45)  # of four short ones no more than 36

    def test_scores_are_those_of_an_evaluation(self):
        self.train("scored", 2, train__steps=1, checkpoint__every=1, rl__overlong_buffer=0)
        rollout = json.loads((self.folder / "scored/checkpoints/step-1/manifest.json").read_text())["rollout"]
        episodes = [episode for batch in rollout["batches"] for episode in batch]
        self.assertGreater(len(episodes), 3)
        write_corpus(self.folder / "said", [episode["tokens"] for episode in episodes])
        self.done("eval", "--model", self.folder / "scorer", "--corpus", self.folder / "said", "--scores",
                  self.folder / "scores.jsonl", "--dtype", "float64", "--context-length", 64)
        scores = [json.loads(line)["numbers"][0] for line in (self.folder / "scores.jsonl").read_text().splitlines()]
        self.assertEqual(len(scores), len(episodes))
        for score, episode in zip(scores, episodes, strict=True):
            self.assertLess(abs(score - episode["reward"]), 1e-11 * max(1, abs(score)))

    def test_models_and_functions_are_summed(self):
        lines = self.train("both", 2, rl__reward=f'["exact", "model:{self.folder}/scorer", "model:{self.folder}/scorer"]')
        for line in lines:
            if "learnt_reward" in line:
                self.assertIn("accuracy", line)
                self.assertGreaterEqual(line["reward"], line["learnt_reward"] - 1e-12)

    def test_a_reward_model_in_codes_gives_the_same_rewards_under_every_layout(self):
        coded = self.train("coded", 1, rl__reward_base='"nf4"')
        self.assertNotEqual(coded[0]["reward"], self.expected[0]["reward"])
        for name, (ranks, strategies, rollouts) in LAYOUTS.items():
            with self.subTest(name):
                self.assert_same(self.train(f"coded_{name}", ranks, parallel__strategies=strategies, parallel__select='"cycle"',
                                            rl__rollout_strategy=f'"{rollouts}"', rl__reward_base='"nf4"'), coded)

    def test_resumed_within_a_rollout(self):
        self.train("half", 2, train__steps=3, checkpoint__every=3)
        self.assert_same(self.train("half", 3, "--resume", "auto", checkpoint__every=3), self.expected)

    def test_a_lost_rank_costs_nothing_but_time(self):
        self.assert_same(self.lose_a_rank("lost", train__steps=24), self.train("unlost", 1, train__steps=24))

    # PPO.

    PPO = {"rl__algorithm": '"ppo"', "rl__num_generations": 2, "rl__kl": 0.05, "rl__critic_lr": 3e-3}

    def test_the_proofs_of_critics_and_updates_hold(self):
        """Of a model large enough that its parameters and activations are most of what a rank has."""
        wide = {**self.PPO, "model__hidden": 256, "model__layers": 4, "model__ffn_hidden": 688, "train__steps": 3}
        for name, ranks, acts, settings in (
                ("float", 2, ("critic", "update"), {"train__dtype": '"float32"'}),
                ("tensor", 2, ("critic", "update"), {"train__dtype": '"float32"', "parallel__strategies": '["<2,1,1>"]'}),
                ("narrow", 2, ("critic",), {"train__dtype": '"bfloat16"'})):
            for line in self.train(f"proved_{name}", ranks, **wide, **settings):
                for act in line.get("acts", []):
                    with self.subTest(name, step=line["step"], act=act["name"]):
                        if act["name"] in acts:
                            self.assertLessEqual(act["peak_bytes"], act["predicted_peak_bytes"])
                            self.assertLessEqual(act["predicted_peak_bytes"], 1.05 * act["peak_bytes"])

    def test_ppo_learns_the_same_under_every_layout_and_resumed(self):
        expected = self.train("ppo", 1, **self.PPO)
        first = next(line for line in expected if "value_loss" in line)
        self.assertGreater(first["critic_grad_norm"], 0)
        for name, (ranks, strategies, rollouts) in LAYOUTS.items():
            with self.subTest(name):
                self.assert_same(self.train(f"ppo_{name}", ranks, parallel__strategies=strategies, parallel__select='"cycle"',
                                            rl__rollout_strategy=f'"{rollouts}"', **self.PPO), expected)
        with self.subTest("resumed"):
            self.train("ppo_half", 2, train__steps=3, checkpoint__every=3, **self.PPO)
            self.assert_same(self.train("ppo_half", 3, "--resume", "auto", checkpoint__every=3, **self.PPO), expected)

    def test_ppo_goes_on_without_a_lost_rank(self):
        """From the newest checkpoint, of the policy and of the critic."""
        settings = {"train__steps": 16, "checkpoint__every": 4, **self.PPO}
        self.assert_same(self.lose_a_rank("ppo_lost", **settings), self.train("ppo_unlost", 1, **settings))

    def test_plans_simulations_traces_and_reports_show_acts(self):
        settings = {"rl__updates_per_rollout": 2, **self.PPO}
        lines = self.train("acts", 2, log__trace_steps="[1]", train__steps=2, **settings)
        between = ["rewards", "policy", "reference", "values"]  # two steps, once a rollout
        self.assertEqual([act["name"] for act in lines[0]["acts"]], [*between, "critic", "update"])
        self.assertEqual([act["name"] for act in lines[1]["acts"]], ["critic", "update"])
        for act in lines[0]["acts"]:
            self.assertGreater(act["ms"], 0, act["name"])
            self.assertGreater(act["predicted_ms"], 0, act["name"])
            self.assertGreater(act["predicted_peak_bytes"], 0, act["name"])
        for file in ("trace-1.json", "trace-1-predicted.json"):
            names = {event.get("name", "").split(": ")[0]
                     for event in json.loads((self.folder / "acts" / file).read_text())["traceEvents"]}
            self.assertLessEqual({"critic", "update"}, names, file)
        self.done("report", self.folder / "acts")
        report = (self.folder / "acts/report.html").read_text()
        section = report[report.index('id="acts"'):]
        for name in (*between, "critic", "update"):
            self.assertIn(f">{name}<", section)
        planned = self.done("plan", *self.arguments("planned", 1, **settings)[1:3],
                            *self.arguments("planned", 1, **settings)[5:], "--ranks", 2, "--explain")
        for name in ("rl.reward ", "rl.kl's reference", "rl.critic", "update of the trained model", "all, one behind the other"):
            self.assertIn(name, planned)
        simulated = json.loads(self.done("simulate", *self.arguments("planned", 1, **settings)[1:3],
                                         *self.arguments("planned", 1, **settings)[5:], "--ranks", 2, "--steps", 2, "--json",
                                         "--out", self.folder / "simulated"))["systems"]["sluice"]
        self.assertEqual([act["name"] for act in simulated["acts"]], ["rewards", "critic", "reference", "update"])

    def test_a_critic_may_begin_as_a_reward_model(self):
        lines = self.train("begun", 1, rl__critic=f'"{self.folder}/scorer"', **self.PPO)
        self.assertNotEqual(lines[0]["value_loss"], self.train("ppo_again", 1, **self.PPO)[0]["value_loss"])

    def test_wrong_models_are_named(self):
        self.make_model("plain", "none", "problems")
        (self.folder / "two/corpus").parent.mkdir(exist_ok=True)
        documents = [[1, 2, 3, 4], [5, 6, 7]] * 8
        write_corpus(self.folder / "two/corpus", documents)
        (self.folder / "two/corpus.labels").write_text('"a"\n"b"\n' * 8)
        self.make_model("two_labels", "classify", "two", labels='["a", "b"]')
        other = json.loads((self.folder / "scorer/tokenizer.json").read_text())
        words = other["model"]["vocab"]
        words["0"], words["1"] = words["1"], words["0"]
        subprocess.run(["cp", "-r", self.folder / "scorer", self.folder / "elsewhere"], check=True)
        (self.folder / "elsewhere/tokenizer.json").write_text(json.dumps(other))
        for model, told in (("nowhere", "has no config.json"), ("plain", "which ends in a vocabulary"),
                            ("two_labels", "which ends in 2 labels, but a reward is one number of a text"),
                            ("elsewhere", "is of another tokenizer than")):
            with self.subTest(model):
                self.assertIn(told, self.refused(rl__reward=f'["model:{self.folder}/{model}"]'))
        self.assertIn("no strategy of the run holds", self.refused(memory__device_gib=0.009, memory__margin_gib=0.0, rl__kl=0))

    def test_a_checkpoint_without_a_critic_is_named(self):
        self.train("plain_rl", 1, train__steps=3, checkpoint__every=3)
        status, errors = self.ended([*self.arguments("plain_rl", 1, **self.PPO), "--resume", "auto"])
        self.assertNotEqual(status, 0)
        self.assertIn("has no critic at", errors)


if __name__ == "__main__":
    unittest.main()
