"""What train says before the first step, of what is left out, has no effect or cannot work; and of steps without finite numbers."""

import json
import re
import struct
import unittest

from commands import CommandTest, call
from model_commands_test import VOCABULARY, configuration


def write_corpus(prefix, documents, masks=None):
    """In Megatron's format, with tokens of 16 bits."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    lengths = [len(document) for document in documents]
    offsets = [2 * sum(lengths[:i]) for i in range(len(lengths))]
    count = len(documents)
    prefix.with_suffix(".bin").write_bytes(b"".join(struct.pack(f"<{len(d)}H", *d) for d in documents))
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1) + struct.pack(f"<{count}i", *lengths)
        + struct.pack(f"<{count}q", *offsets) + struct.pack(f"<{count + 1}q", *range(count + 1)))
    if masks:
        prefix.with_suffix(".mask").write_bytes(b"".join(map(bytes, masks)))
    return prefix


class RunNotes(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = cls.folder / "run.toml"
        cls.config.write_text(configuration(cls.folder, steps=4))
        documents = [[i % VOCABULARY, *range(1, 30 + 13 * (i % 12))] for i in range(40)] + [[5]]
        write_corpus(cls.folder / "corpus/corpus", documents)

    def run_with(self, *settings, dry=True):
        told = [part for each in settings for part in ("--set", each)]
        return call("train", "--config", self.config, *told, *(["--dry-run"] if dry else []))

    def said(self, *settings, dry=True):
        result = self.run_with(*settings, dry=dry)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def test_schedules_that_do_not_fit_the_run(self):
        for settings, line in ((["optimizer.warmup_steps=100"], "warmup_steps is 100, but the run has 4"),
                               (["optimizer.lr=1e-5", "optimizer.min_lr=1e-3"], "min_lr is 0.001, above optimizer.lr, which is 1e-05"),
                               (['optimizer.decay="wsd"', "optimizer.decay_steps=50"], "decay_steps is 50, but"),
                               (["train.eval_every=2"], "train.eval_every is 2, but there is nothing to evaluate with")):
            self.assertIn(line, self.said(*settings))

    def test_ranks_without_work(self):
        sets = ("--set", 'parallel.strategies=["2x<1,1,1>"]', "--dry-run")
        told = call("train", "--config", self.config, "--nproc", 3, *sets)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertRegex(told.stderr, "1 of 3 ranks compute nothing: no strategy uses more than 2 ranks: add one of 3 to parallel.strategies")
        self.assertNotIn("compute nothing", call("train", "--config", self.config, "--nproc", 2, *sets).stderr)

    def test_documents_that_are_cut_or_left_out(self):
        said = self.said()
        self.assertRegex(said, r"data\.train: 1 of 41 documents have fewer than 2 tokens")
        self.assertRegex(said, r"data\.train: \d+ of 41 documents are longer than data\.context_length, 128, and cut there: [\d,]+ tokens")
        self.assertRegex(self.said('data.overflow="drop"'), "128, and left out")
        self.assertNotIn("longer than", self.said('data.overflow="split"'))

    def test_evaluations_that_look_at_nothing(self):
        self.assertIn("validation_fraction is 1e-06, which holds none of 41 documents out",
                      self.said("train.eval_every=2", "data.validation_fraction=1e-6"))
        late = write_corpus(self.folder / "late/corpus", [[7] * 200] * 4, [[0] * 150 + [1] * 50] * 4)
        sets = f'data.validation={{late = ["{late}"], all = ["{self.folder}/corpus/corpus"]}}'
        run = self.folder / "evaluated"
        said = self.said("train.eval_every=4", sets, f'log.dir="{run}"', dry=False)
        self.assertIn("the validation set late has no token that counts within data.context_length, 128", said)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["set"] for line in lines if "validation_loss" in line], ["all"])

    def test_what_was_learnt_before_numbers_that_are_not_finite_is_saved(self):
        # Each update multiplies matrices by a million: they stay finite for some steps, and their products do not.
        run = self.folder / "large"
        settings = ["optimizer.lr=1000", "optimizer.min_lr=1000", "optimizer.weight_decay=1000", "optimizer.warmup_steps=0",
                    "train.steps=40", "checkpoint.every=0", f'log.dir="{run}"', 'train.dtype="float32"']
        ended = self.run_with(*settings, dry=False)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        told = re.search(r"step (\d+) has loss .* and gradient norm .*; the steps before it are saved as step-(\d+): resume "
                         r'with a lower optimizer\.lr, or with train\.on_nonfinite = "skip"', ended.stderr)
        self.assertTrue(told, ended.stderr)
        bad = int(told[1]) - 1
        self.assertEqual(int(told[2]), bad)
        self.assertEqual([path.name for path in (run / "checkpoints").glob("step-*")], [f"step-{bad}"])
        # A run that is resumed meets the same batch, and may leave it out, as long as there is some end to it.
        settings.append('train.on_nonfinite="skip"')
        ended = call("train", "--config", self.config, "--resume", "auto", *(part for each in settings for part in ("--set", each)))
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn(f"step {bad + 1} has loss", ended.stderr)
        self.assertIn("its update is left out (train.on_nonfinite); 9 so far", ended.stderr)
        self.assertRegex(ended.stderr, rf"step {bad + 10} has loss .*, as have the 9 before it; the steps before it are saved "
                         rf"as step-{bad + 9}")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line.get("skipped_updates") for line in lines][-10:], list(range(1, 11)))
    def test_tokens_without_rows(self):
        documents = [[1, 2, 3]] * 60 + [[4, VOCABULARY, 5]] + [[1, 2, 3]] * 60
        prefix = write_corpus(self.folder / "beyond/corpus", documents)
        train = f'data.train=[["{prefix}", 1]]'
        for described in (None, {"vocabulary": VOCABULARY + 1}):
            if described:
                (prefix.parent / "lengths.json").write_text(json.dumps(described))
            result = self.run_with(train)
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"document 60 has token {VOCABULARY} at position 1, but the vocabulary has {VOCABULARY} ids", result.stderr)
        self.assertIn(f"has {VOCABULARY + 1} ids, but the model rows for {VOCABULARY}", result.stderr)
        write_corpus(prefix, documents[:60])  # the tokenizer's last id, and nobody uses it
        self.said(train)

    def test_lists_of_batches_that_name_what_is_held_out(self):
        listed = self.folder / "batches.jsonl"
        listed.write_text("".join(json.dumps({"documents": list(range(40))}) + "\n" for _ in range(4)))
        self.assertRegex(self.said(f'data.batches="{listed}"', "data.validation_fraction=0.3"),
                         r"batches\.jsonl names documents \d+ times that data\.validation_fraction holds out")

    def test_prompts_that_leave_no_room(self):
        documents = [[1] * (140 if i % 4 == 3 else 20) + [2] * 5 for i in range(16)]
        prefix = write_corpus(self.folder / "prompts/corpus", documents, [[0] * (len(d) - 5) + [1] * 5 for d in documents])
        with (self.folder / "rl.toml").open("w") as file:
            file.write(configuration(self.folder) + '[rl]\nalgorithm = "grpo"\nprompts_per_step = 2\nnum_generations = 2\nreward = ["regex:a"]\n')
        result = call("train", "--config", self.folder / "rl.toml", "--dry-run", "--set", f'data.train=[["{prefix}", 1]]',
                      "--set", "rl.max_completion_length=120")
        self.assertIn("data.train: 4 of 16 documents have a prompt that is too long", result.stderr)
        self.assertIn("data.train: 12 of 16 documents have a prompt that leaves less room than rl.max_completion_length, 120", result.stderr)

    def test_positions_beyond_the_models(self):
        self.done("train", "--config", self.config, "--set", f'log.dir="{self.folder}/short"')
        self.done("export", self.folder / "short", "--out", self.folder / "model", "--max-positions", 64)
        line = "but the model was made for 64 positions"
        evaluated = call("eval", "--model", self.folder / "model", "--corpus", self.folder / "corpus/corpus", "--context-length", 128)
        self.assertEqual(evaluated.stderr.count(line), 1, evaluated.stderr)
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text(json.dumps({"ids": [1, 2, 3]}) + "\n")
        generated = call("generate", "--model", self.folder / "model", "--prompts", prompts, "--out", self.folder / "said.jsonl",
                         "--tokens", 70)
        self.assertEqual(generated.stderr.count(line), 1, generated.stderr)
        config = self.folder / "tuned.toml"
        text = configuration(self.folder)
        config.write_text(f'[model]\nhf = "{self.folder}/model"\n' + text[text.index("[data]"):])
        tuned = call("train", "--config", config, "--dry-run")
        self.assertIn(f"data.context_length is 128, {line}", tuned.stderr)


if __name__ == "__main__":
    unittest.main()
