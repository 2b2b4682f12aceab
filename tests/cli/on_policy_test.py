"""Distillation over the student's own responses: the loss of the same rows as documents, the same numbers under every layout,
resumed, its share of steps, vocabularies that are padded differently, and wrong input named."""

import array
import json
import random
import shutil
import sys
import unittest

import learnt_rewards_test
import reinforcement_test  # whose classes are no tests of this program
from learnt_rewards_test import LAYOUTS, SHAPE
from reinforcement_test import ROOT, TESTS, write_problems

sys.path.insert(0, str(TESTS / "integration"))
sys.path.insert(0, str(ROOT / "examples/rl"))

from commands import CommandTest  # noqa: E402
from harness import write_corpus  # noqa: E402
from sorting import WORDS  # noqa: E402
from tensor_files import read_tensors, write_tensors  # noqa: E402

DIVERGENCES = {"forward_kl": {}, "reverse_kl": {"teacher__divergence": '"reverse_kl"'},
               "jsd": {"teacher__divergence": '"jsd"', "teacher__beta": 0.3, "teacher__temperature": 2.0}}
FIGURES = ("loss", "grad_norm", "entropy", "response_tokens", "response_mean", "validation_loss")


class OnPolicy(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_problems(cls)
        cls.make_model("teacher", "none", "problems")
        (cls.folder / "run.toml").write_text("\n".join([
            "[model]", *SHAPE, "[data]", f'train = [["{cls.folder}/problems/corpus", 1.0]]',
            f'validation = ["{cls.folder}/held_out/corpus"]', "context_length = 64", "tokens_per_step = 120", "[train]", "steps = 6",
            "threads = 1", 'dtype = "float64"', "eval_every = 3", "[rl]", "max_completion_length = 20", "[teacher]",
            f'hf = "{cls.folder}/teacher"', "lmbda = 1.0", "[optimizer]", "lr = 1e-2", "warmup_steps = 1", 'decay = "constant"',
            "[parallel]", 'strategies = ["<1,1,1>"]', 'calibration = "analytic"', "[memory]", "device_gib = 1.0", "margin_gib = 0.1",
            "[log]", f'dir = "{cls.folder}/one"', "tensorboard = false", "completions_every = 1"]) + "\n")
        cls.expected = cls.train("one", 1)

    make_model = classmethod(learnt_rewards_test.LearntRewards.make_model.__func__)
    arguments = classmethod(reinforcement_test.Reinforcement.arguments.__func__)
    lines = classmethod(reinforcement_test.Reinforcement.lines.__func__)
    train = classmethod(reinforcement_test.Reinforcement.train.__func__)
    ended = staticmethod(reinforcement_test.Reinforcement.ended)
    refused = reinforcement_test.Reinforcement.refused
    lose_a_rank = reinforcement_test.Reinforcement.lose_a_rank

    def assert_same(self, lines, expected, keys=FIGURES, tolerance=1e-11):
        self.assertEqual(len(lines), len(expected))
        for own, other in zip(lines, expected, strict=True):
            for key in keys:
                self.assertEqual(key in own, key in other, key)
                if key in own:
                    self.assertLess(abs(own[key] - other[key]), tolerance * max(1, abs(other[key])), (key, own["step"]))

    def test_the_loss_is_that_of_the_same_rows_as_documents(self):
        """Of a batch of at most two conversations completions.jsonl has all responses."""
        for name, divergence in DIVERGENCES.items():
            with self.subTest(name):
                first = {"train__steps": 1, "optimizer__lr": 0, "optimizer__min_lr": 0, "data__tokens_per_step": 40, **divergence}
                own = self.train(f"own_{name}", 2, **first)[0]
                said = [json.loads(line) for line in (self.folder / f"own_{name}/completions.jsonl").read_text().splitlines()]
                self.assertEqual(own["sequences"], len(said))
                self.assertEqual(own["response_tokens"], sum(each["tokens"] for each in said))
                documents, mask = [], b""
                for each in said:
                    self.assertNotIn("reward", each)
                    prompt, answer = each["prompt"].split(), each["completion"].split()
                    answer += ["<end>"] if each["finish_reason"] == "stop" else []
                    self.assertEqual(len(answer), each["tokens"])
                    documents.append([WORDS.index(word) for word in prompt + answer])
                    mask += bytes([0] * len(prompt) + [1] * len(answer))
                write_corpus(self.folder / f"said_{name}", documents)
                (self.folder / f"said_{name}.mask").write_bytes(mask)
                other = self.train(f"documents_{name}", 1, teacher__lmbda=0, data__train=f'[["{self.folder}/said_{name}", 1.0]]',
                                   data__validation="[]", train__eval_every=0,
                                   **{**first, "data__tokens_per_step": sum(map(len, documents))})[0]
                self.assertNotIn("response_tokens", other)
                for key in ("loss", "grad_norm", "tokens"):
                    self.assertLess(abs(own[key] - other[key]), 1e-11 * max(1, abs(other[key])), key)

    def test_every_layout_learns_the_same(self):
        for name, (ranks, strategies, rollouts) in LAYOUTS.items():
            with self.subTest(name):
                self.assert_same(self.train(name, ranks, parallel__strategies=strategies, parallel__select='"cycle"',
                                            rl__rollout_strategy=f'"{rollouts}"'), self.expected)

    def test_a_resumed_run_samples_what_it_would_have_sampled(self):
        self.train("half", 2, train__steps=3, checkpoint__every=3)
        self.assert_same(self.train("half", 3, "--resume", "auto", checkpoint__every=3), self.expected)

    def test_a_lost_rank_costs_nothing_but_time(self):
        self.make_model("second", "none", "held_out")
        settings = {"train__steps": 40, "teacher__lmbda": 0.5, "teacher__weights": "[1, 2]",
                    "teacher__hf": f'["{self.folder}/teacher", "{self.folder}/second"]'}
        self.assert_same(self.lose_a_rank("lost", **settings), self.train("unlost", 1, **settings))

    def test_plans_and_simulations_show_acts(self):
        planned = self.done("plan", *self.arguments("planned", 1)[1:3], "--explain")
        self.assertRegex(planned, r"teacher.hf .* +\d.*\n")
        simulated = json.loads(self.done("simulate", *self.arguments("planned", 1)[1:3], "--steps", 3, "--json",
                                         "--set", "teacher.lmbda=0", "--out", self.folder / "simulated"))["systems"]["sluice"]
        self.assertEqual([act["name"] for act in simulated["acts"]], ["teacher", "update"])
        self.assertAlmostEqual(sum(act["mean_ns"] for act in simulated["acts"]), simulated["mean_step_ns"], delta=3)
        steps = [json.loads(line) for line in (self.folder / "simulated/metrics.jsonl").read_text().splitlines()]
        for step in steps:
            self.assertAlmostEqual(step["time_ms"], sum(act["ms"] for act in step["acts"]), places=5)
            self.assertAlmostEqual(sum(step["rank_time_ns"].values()), 1e6 * step["time_ms"], delta=10)
        self.assertIn('id="acts"', (self.folder / "simulated/report.html").read_text())

    def test_the_student_comes_nearer_on_what_it_says(self):
        lines = [line for line in self.train("long", 1, train__steps=60, train__eval_every=0, data__tokens_per_step=400)
                 if "loss" in line]
        self.assertLess(sum(line["loss"] for line in lines[-5:]), sum(line["loss"] for line in lines[:5]) / 2)
        acts = lines[-1]["acts"]
        self.assertEqual([act["name"] for act in acts], ["teacher", "update"])
        for act in acts:
            self.assertGreater(act["ms"], 0)
            self.assertGreater(act["predicted_ms"], 0)
        self.assertAlmostEqual(lines[-1]["predicted_ms"], sum(act["predicted_ms"] for act in acts), places=3)

    def test_lmbda_is_the_share_of_steps(self):
        lines = [line for line in self.train("third", 1, teacher__lmbda=0.34, train__steps=12, train__eval_every=0) if "loss" in line]
        self.assertEqual([line["step"] for line in lines if "response_tokens" in line], [2, 5, 8, 11])
        plain = self.train("never", 1, teacher__lmbda=0, train__eval_every=0)
        self.assertFalse(any("response_tokens" in line for line in plain))
        self.assert_same(lines[:2], plain[:2], ("loss", "grad_norm", "tokens"), tolerance=0.1**15)

    def test_padded_vocabularies_are_compared_over_the_rows_that_both_have(self):
        padded = self.folder / "padded"
        shutil.copytree(self.folder / "teacher", padded)
        shutil.copy(self.folder / "tokenizer.json", padded)
        config = json.loads((padded / "config.json").read_text())
        chance = random.Random(5)
        tensors, _ = read_tensors(padded / "model.safetensors")
        for name, (dtype, shape, content) in tensors.items():
            if shape[0] == len(WORDS):
                self.assertEqual(dtype, "F32")
                more = array.array("f", [chance.gauss(0, 3) for _ in range((20 - shape[0]) * shape[1])])
                tensors[name] = (dtype, [20, shape[1]], content + more.tobytes())
        write_tensors(padded / "model.safetensors", tensors)
        (padded / "config.json").write_text(json.dumps({**config, "vocab_size": 20}))
        self.assert_same(self.train("padded_teacher", 2, teacher__hf=f'"{padded}"', parallel__strategies='["<2,1,1>"]'), self.expected)
        with self.subTest("a padded student"):
            # Rows that the teacher lacks: other layouts cut them elsewhere.
            shutil.copy(self.folder / "tokenizer.json", self.folder / "teacher")
            self.addCleanup((self.folder / "teacher/tokenizer.json").unlink)
            expected = self.train("padded_one", 1, model__vocab=21)
            self.assertNotEqual(expected[0]["loss"], self.expected[0]["loss"])
            self.assert_same(self.train("padded_two", 4, model__vocab=21, parallel__strategies='["<4,1,1>"]'), expected)
        (padded / "tokenizer.json").unlink()
        self.assertIn("rows for 20 tokens, but the model that is trained has 14", self.refused(teacher__hf=f'"{padded}"'))

    def test_wrong_input_is_named(self):
        write_corpus(self.folder / "plain", [[1, 2, 3, 4]] * 20)
        for settings, told in (
                ({"data__train": f'[["{self.folder}/plain", 1.0]]'}, "teacher.lmbda needs conversations in data.train"),
                ({"teacher__hf": '""'}, "teacher.lmbda is 1, which has an effect only beside teacher.hf"),
                ({"teacher__alpha": 0.5}, "teacher.alpha is 0.5 and teacher.lmbda 1"),
                ({"teacher__beta": 0.5, "teacher__divergence": '"jsd"', "teacher__lmbda": 1.5}, "teacher.lmbda"),
                ({"rl__critic_lr": 0.1}, "rl.critic_lr is 0.1, which has an effect only with rl.algorithm"),
                ({"rl__kv_cache_gib": 0.000001}, "rl.kv_cache_gib"),
                ({"rl__algorithm": '"grpo"'}, "teacher.hf and rl.algorithm are both objectives")):
            with self.subTest(told):
                self.assertIn(told, self.refused(**settings))


if __name__ == "__main__":
    unittest.main()
