"""Training with [rl]: the same numbers under every layout, resumed, and with a rank that dies; and wrong input."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "integration"))

from commands import HANG_S, SLUICE, CommandTest, a_worker, call  # noqa: E402
from harness import checkpoint_tensors  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
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
validation = ["{folder}/held_out/corpus"]
context_length = 64
[train]
steps = 6
threads = 1
dtype = "float64"
eval_every = 3
[rl]
algorithm = "dapo"
prompts_per_step = 6
num_generations = 4
updates_per_rollout = 2
max_completion_length = 20
max_resamples = 2
kl = 0.02
val_max_samples = 8
reward = ["regex:^[0-4 ]*5", "python:{folder}/low.py:score"]
[optimizer]
lr = 1e-3
warmup_steps = 1
decay = "constant"
[parallel]
strategies = ["<1,1,1>"]
calibration = "analytic"
[memory]
device_gib = 1.0
margin_gib = 0.1
[log]
dir = "{folder}/one"
tensorboard = false
"""
LOW = """
def score(prompt, response, reference):
    words = response.split()
    return sum(word in "01234" for word in words) / max(len(words), 1)
"""
# Pairs of layouts: of updates, and of rollouts ("": whole models on each rank).
LAYOUTS = {
    "tensor": (2, '["1x<2,1,1>"]', ""),
    "stages": (2, '["1x<1,2,1>"]', "<2,1,1>"),
    "lanes": (3, '["1x<1,1,3>"]', "<1,2,1> + <1,1,1>"),
    "lanes that speak": (4, '["4x<1,1,1>"]', "2x<1,1,2>"),
    "shared": (4, '["1x<1,1,4,4>", "1x<2,1,1> + 2x<1,1,1>"]', "<2,2,1>"),
    "mixed": (4, '["2x<1,2,1>"]', "2x<2,1,1>"),
}
FIGURES = ("loss", "reward", "accuracy", "grad_norm", "entropy", "reference_kl", "validation_loss", "response_tokens")


def write_problems(test):
    """Sorting problems in a class's folder, 40 to learn from and 40 held out, with their tokenizer and corpora."""
    subprocess.run(["python3", ROOT / "examples/rl/sorting.py", test.folder, "3"], check=True)
    for name in ("problems", "held_out"):
        path = test.folder / f"{name}.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:40]))
        test.done("corpus", "build", path, "--chat", "--tokenizer", test.folder / "tokenizer.json", "--out", test.folder / name)


class Reinforcement(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_problems(cls)
        (cls.folder / "low.py").write_text(LOW)
        (cls.folder / "run.toml").write_text(CONFIG.format(folder=cls.folder))
        cls.expected = cls.train("one", 1)

    @classmethod
    def arguments(cls, name, ranks, **settings):
        settings = {"log.dir": f'"{cls.folder}/{name}"', **{key.replace("__", "."): value for key, value in settings.items()}}
        return ["train", "--config", cls.folder / "run.toml", "--nproc", ranks,
                *(part for key, value in settings.items() for part in ("--set", f"{key}={value}"))]

    @classmethod
    def lines(cls, name):
        return [json.loads(line) for line in (cls.folder / name / "metrics.jsonl").read_text().splitlines()]

    @classmethod
    def train(cls, name, ranks, *more, **settings):
        cls.done(*cls.arguments(name, ranks, **settings), *more)
        return cls.lines(name)

    def assert_same(self, lines, tolerance=1e-11, expected=None):
        expected = expected or self.expected
        self.assertEqual(len(lines), len(expected))
        for own, other in zip(lines, expected):
            for key in FIGURES:
                self.assertEqual(key in own, key in other)
                if key in own:
                    self.assertLess(abs(own[key] - other[key]), tolerance * max(1, abs(other[key])), (key, own["step"]))

    @staticmethod
    def ended(arguments):
        result = call(*arguments)
        return result.returncode, result.stderr

    def refused(self, ranks=1, **settings):
        status, errors = self.ended(self.arguments("refused", ranks, **settings))
        self.assertNotEqual(status, 0)
        return errors

    def left_over(self, name):
        """Behind step 5, in the middle of a rollout: the ids of the responses that are still to be trained on, and how many
        tokens all of its responses have."""
        rollout = json.loads((self.folder / name / "checkpoints/step-5/manifest.json").read_text())["rollout"]
        return [[episode["tokens"] for episode in batch] for batch in rollout["batches"]], rollout["response_lengths"]

    def assert_same_parameters(self, name, expected, tolerance=1e-11):
        """And moments, element by element, over the largest of a tensor."""
        for step in (5, 6):
            own, other = (checkpoint_tensors(self.folder / run, step) for run in (name, expected))
            self.assertEqual(own.keys(), other.keys())
            for tensor, values in other.items():
                largest = max(map(abs, values), default=0) or 1
                worst = max((abs(a - b) for a, b in zip(own[tensor], values, strict=True)), default=0)
                self.assertLessEqual(worst, tolerance * largest, (name, step, tensor))

    def test_every_layout_says_and_learns_the_same(self):
        saved = {"checkpoint__every": 5, "checkpoint__keep": 2}
        self.train("one_saved", 1, **saved)
        ids = self.left_over("one_saved")
        self.assertGreater(sum(map(len, ids[0])), 0)
        for name, (ranks, strategies, speaking) in LAYOUTS.items():
            with self.subTest(name):
                self.assert_same(self.train(name, ranks, parallel__strategies=strategies, parallel__select='"cycle"',
                                            rl__rollout_strategy=f'"{speaking}"', **saved))
                self.assertEqual(self.left_over(name), ids)
                self.assert_same_parameters(name, "one_saved")

    def test_prompts_computed_once_or_for_every_response(self):
        def shared(lines):
            return {line["shared_prompt_tokens"] for line in lines if "loss" in line}
        self.assertGreater(min(shared(self.expected)), 0)
        for name, ranks, strategies in (("alone", 1, '["1x<1,1,1>"]'), ("alone_in_a_ring", 3, '["1x<1,1,3>"]')):
            lines = self.train(name, ranks, parallel__strategies=strategies, rl__share_prompts="false")
            self.assertEqual(shared(lines), {0})
            self.assert_same(lines)

    def test_layouts_of_rollouts_that_cannot_be(self):
        for speaking, fault in {"<1,1,2,2>": "which share parameters", "<1,1,1>": "give pipelines for all of them",
                                "<1,2": "rl.rollout_strategy"}.items():
            self.assertIn(fault, self.refused(2, rl__rollout_strategy=f'"{speaking}"'))

    def test_rollouts_know_what_updates_find(self):
        rollouts = [line for line in self.expected if "sampling_rounds" in line]
        self.assertEqual([line["step"] for line in rollouts], [0, 2, 4])
        for line in rollouts:
            self.assertLess(line["rollout_logprob_diff"], 1e-12)
            self.assertEqual(line["clip_fraction"], 0)
        self.assertGreater(self.expected[1]["rollout_logprob_diff"], 1e-9, "the second update is of another policy")

    def test_groups_may_hold_more_texts_than_the_cache(self):
        self.assert_same(self.train("tight", 2, rl__kv_cache_gib=0.0001, rl__max_num_seqs=3))

    def test_resumed_within_a_rollout(self):
        self.train("half", 2, train__steps=3, checkpoint__every=3)
        self.assert_same(self.train("half", 3, "--resume", "auto", checkpoint__every=3))

    def lose_a_rank(self, name, **settings):
        """One of three, behind step 8."""
        command = [SLUICE, *map(str, self.arguments(name, 3, elastic__snapshot_every=1, **settings))]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            log = ""
            for line in process.stderr:
                log += line
                if re.search(r"step 8/", line):
                    os.kill(a_worker(process.pid), signal.SIGKILL)
                    break
            log += process.stderr.read()
        self.assertEqual(process.returncode, 0, log)
        self.assertIn("membership", log)
        return self.lines(name)

    def test_a_lost_rank_costs_nothing_but_time(self):
        self.assert_same(self.lose_a_rank("lost", train__steps=40), expected=self.train("unlost", 1, train__steps=40))

    def test_evaluations_do_not_change_what_rollouts_are_planned_by(self):
        runs = [self.train(name, 2, train__eval_every=every, parallel__strategies='["1x<2,1,1>"]')
                for name, every in (("evaluated", 1), ("unevaluated", 0))]
        predicted = [[line["rollout_predicted_ms"] for line in run if "rollout_predicted_ms" in line] for run in runs]
        self.assertGreater(len(predicted[0]), 1)
        self.assertEqual(*predicted)

    def test_a_reward_that_fails_ends_the_run_with_what_was_done_saved(self):
        for body, told, timeout_s in (("raise ValueError('odd')", "ValueError: odd", HANG_S),
                                      ("return float('nan')", "returned nan", HANG_S),
                                      ("while True: pass", "took longer than 5 s", 5)):
            with self.subTest(body):
                # After a rollout that goes well.
                (self.folder / "bad.py").write_text(
                    "calls = 0\ndef score(prompt, response, reference):\n    global calls\n    calls += 1\n"
                    f"    if calls <= 60: return calls % 3\n    {body}\n")
                name = re.sub("[^a-z]", "", body)
                status, errors = self.ended(self.arguments(
                    name, 2, rl__reward=f'["python:{self.folder}/bad.py:score"]', checkpoint__every=100,
                    rl__reward_timeout_s=timeout_s, train__steps=40, rl__val_max_samples=0))
                self.assertNotEqual(status, 0)
                self.assertIn(told, errors)
                self.assertTrue(list((self.folder / name / "checkpoints").glob("step-*")), errors)

    def test_a_run_goes_on_without_rewards_that_fail(self):
        (self.folder / "odd.py").write_text(
            "import os\ndef score(prompt, response, reference):\n    if len(response) % 3 == 0:\n"
            "        raise ValueError('odd')\n    if len(response) % 3 == 1:\n        os._exit(3)\n    return len(response)\n")
        for choice, told in (("zero", "and are 0"), ("drop", "which are left out")):
            with self.subTest(choice):
                status, errors = self.ended(self.arguments(
                    choice, 2, rl__reward=f'["python:{self.folder}/odd.py:score"]', rl__on_bad_reward=f'"{choice}"',
                    rl__val_max_samples=0))
                self.assertEqual(status, 0, errors)
                self.assertRegex(errors, f"the rewards of [0-9]+ of [0-9]+ responses failed,? {told}")
                self.assertRegex(errors, f"{self.folder}/odd.py:4: score failed with ValueError: odd|ended with status 3")
                self.assertGreater(sum(line.get("bad_rewards") or 0 for line in self.lines(choice)), 0)

    def test_nothing_left_to_learn_ends_the_run(self):
        status, errors = self.ended(self.arguments("done", 2, rl__reward='["regex:never"]', checkpoint__every=100))
        self.assertEqual(status, 0, errors)
        self.assertIn("nothing is left to learn: in 2 draws of 6 prompts", errors)

    def test_rewards_that_are_all_equal_are_told(self):
        status, errors = self.ended(self.arguments("equal", 2, rl__reward='["regex:never"]', rl__algorithm='"grpo"'))
        self.assertEqual(status, 0, errors)
        self.assertRegex(errors, "step 1: all responses to each prompt have the same reward, 0 in the mean, so their advantages are 0: ")
        self.assertRegex(errors, r"step 1/\d+  loss .*  reward 0\.000  response [\d.]+ tokens \(p99 \d+\)  logprob diff ")

    def test_wrong_input_is_named(self):
        plain = self.folder / "plain.txt"
        plain.write_text("1 2 3 4 5\n" * 20)
        self.done("corpus", "build", plain, "--tokenizer", self.folder / "tokenizer.json", "--out", self.folder / "plain")
        for settings, told in (
                ({"data__train": f'[["{self.folder}/plain/corpus", 1.0]]'}, "needs conversations in data.train"),
                ({"rl__reward": '["best"]'}, 'rl.reward names "best"'),
                ({"rl__reward": "[]"}, "rl.reward is empty"),
                ({"rl__num_generations": 1}, "rl.num_generations is 1"),
                ({"train__z_loss": 0.1}, "train.z_loss is 0.1"),
                ({"rl__algorithm": '"a2c"'}, "none, grpo, dapo, dr_grpo, reinforce, ppo"),
                ({"rl__kv_cache_gib": 0.000001}, "rl.kv_cache_gib"),
                ({"data__context_length": 4}, "no document to sample"),
                ({"rl__algorithm": '"dpo"'}, "rl.rejected is empty")):
            with self.subTest(told):
                self.assertIn(told, self.refused(**settings))


class DividedExperts(CommandTest):
    """Rollouts of a mixture whose experts lanes have between them, in updates and in rollouts."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_problems(cls)
        (cls.folder / "low.py").write_text(LOW)
        model = f'[model]\nhf = "{TESTS}/data/parity/glm4_moe"\n'
        (cls.folder / "run.toml").write_text(re.sub(r"\[model\].*?(?=\[data\])", model, CONFIG.format(folder=cls.folder),
                                                    flags=re.DOTALL).replace("steps = 6", "steps = 4"))

    arguments = classmethod(Reinforcement.arguments.__func__)
    lines = classmethod(Reinforcement.lines.__func__)
    train = classmethod(Reinforcement.train.__func__)
    assert_same = Reinforcement.assert_same

    def test_rollouts_and_updates_are_one_ranks(self):
        expected = self.train("one", 1)
        for ranks, updates, rollouts in ((4, "4x<1,1,1>", "<1,1,4,4,4>"), (4, "<1,1,4,4,2>", "2x<1,1,2,2,2>"),
                                         (2, "<1,1,2,2,2>", "<1,1,2,2,2>")):
            with self.subTest(rollouts):
                self.assert_same(self.train(f"run_{ranks}_{rollouts}".replace("<", "").replace(">", ""), ranks,
                                            parallel__strategies=f'["{updates}"]', rl__rollout_strategy=f'"{rollouts}"'),
                                 expected=expected)


class Preferences(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        subprocess.run(["python3", ROOT / "examples/rl/sorting.py", cls.folder, "3"], check=True)
        chosen = [json.loads(line) for line in (cls.folder / "problems.jsonl").read_text().splitlines()[:40]]
        (cls.folder / "chosen.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chosen))
        for chat in chosen:
            chat["messages"][1]["content"] = " ".join(reversed(chat["messages"][1]["content"].split())) + " ;"
        (cls.folder / "rejected.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chosen))
        (cls.folder / "few.jsonl").write_text(json.dumps(chosen[0]) + "\n")
        for name in ("chosen", "rejected", "few"):
            cls.done("corpus", "build", cls.folder / f"{name}.jsonl", "--chat", "--tokenizer",
                     cls.folder / "tokenizer.json", "--out", cls.folder / name)
        config = CONFIG.format(folder=cls.folder)
        config = re.sub(r"\[rl\].*?\n\[", f'[rl]\nalgorithm = "dpo"\nprompts_per_step = 5\nrejected = '
                        f'["{cls.folder}/rejected/corpus"]\n[', config, flags=re.DOTALL)
        (cls.folder / "run.toml").write_text(
            config.replace("problems", "chosen").replace(f'validation = ["{cls.folder}/held_out/corpus"]\n', "")
            .replace("eval_every = 3\n", ""))

    def train(self, name, ranks, *more, **settings):
        self.done(*Reinforcement.arguments.__func__(type(self), name, ranks, **settings), *more)
        return Reinforcement.lines.__func__(type(self), name)

    def test_pairs_are_learnt_alike_under_every_layout_and_resumed(self):
        expected = self.train("one", 1)
        self.assertAlmostEqual(expected[0]["loss"], 0.6931471805599453, places=12)
        self.assertGreater(expected[-1]["reward_margin"], 0)
        self.train("half", 2, train__steps=3, checkpoint__every=3)
        runs = [self.train("half", 3, "--resume", "auto", checkpoint__every=3),
                self.train("alone", 1, rl__share_prompts="false")]
        self.assertGreater(expected[0]["shared_prompt_tokens"], runs[-1][0]["shared_prompt_tokens"])
        runs += [self.train(name, ranks, parallel__strategies=strategies, parallel__select='"cycle"')
                 for name, (ranks, strategies, _) in LAYOUTS.items()]
        for run in runs:
            for own, other in zip(run, expected, strict=True):
                for key in ("loss", "reward_margin", "accuracy", "grad_norm"):
                    self.assertLess(abs(own[key] - other[key]), 1e-11 * max(1, abs(other[key])), (key, own["step"]))

    def test_unwanted_answers_come_in_an_order_of_their_own(self):
        """Of answers of six lengths the tokens of a step of one answer of each kind tell which was drawn."""
        def build(name, sizes):
            chats = [{"messages": [{"role": "user", "content": "1 2"},
                                   {"role": "assistant", "content": " ".join("3" * size) + " ;"}]} for size in sizes]
            (self.folder / f"{name}.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
            self.done("corpus", "build", self.folder / f"{name}.jsonl", "--chat", "--tokenizer",
                      self.folder / "tokenizer.json", "--out", self.folder / name)
        build("wanted", [4] * 6)
        build("unwanted", range(8, 32, 4))
        settings = {"rl__algorithm": '"kto"', "rl__prompts_per_step": 1, "train__steps": 18,
                    "data__train": f'[["{self.folder}/wanted/corpus", 1.0]]', "rl__rejected": f'["{self.folder}/unwanted/corpus"]'}
        tokens = [line["tokens"] for line in self.train("kto", 1, **settings)]
        ranks = sorted(set(tokens))
        epochs = [[ranks.index(each) for each in tokens[begin:begin + 6]] for begin in (0, 6, 12)]
        self.assertEqual([sorted(epoch) for epoch in epochs], [list(range(6))] * 3, tokens)
        self.assertNotIn(list(range(6)), epochs)
        self.assertEqual(len({tuple(epoch) for epoch in epochs}), 3, epochs)
        self.train("kto_half", 1, **settings | {"train__steps": 9, "checkpoint__every": 9})
        rest = self.train("kto_half", 1, "--resume", "auto", **settings)
        self.assertEqual([line["tokens"] for line in rest], tokens)

    def test_pairs_have_two_answers(self):
        status, errors = Reinforcement.ended(Reinforcement.arguments.__func__(
            type(self), "refused", 1, rl__rejected=f'["{self.folder}/few/corpus"]'))
        self.assertNotEqual(status, 0)
        self.assertIn("rl.rejected has 1 documents, data.train 40", errors)


if __name__ == "__main__":
    unittest.main()
