"""What travels in fewer bits, as [link] says: the same losses under every strategy where parameters do, runs that resume to the
bit, bytes that shrink, and words that a level can't use."""

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

from commands import SLUICE, CommandTest, a_worker, call  # noqa: E402

CORPUS = TESTS / "data" / "parity" / "glm4_moe"
CONFIG = """
[model]
layers = 2
hidden = 48
heads = 4
kv_heads = 2
head_dim = 12
ffn_hidden = 130
vocab = {vocabulary}
[data]
train = [["{corpus}/corpus", 1.0]]
context_length = 64
tokens_per_step = 256
[train]
steps = 8
threads = 1
dtype = "float64"
[optimizer]
lr = 3e-3
warmup_steps = 2
decay = "constant"
[parallel]
strategies = ["4x<1,1,1>"]
calibration = "analytic"
[memory]
device_gib = 1.0
margin_gib = 0.1
[log]
tensorboard = false
"""
ALL = ("--set", "link.pull=int4-difference", "--set", "link.push=['int8', 'int4']", "--set", "link.gather=int8")


class Wire(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = cls.folder / "run.toml"
        vocabulary = json.loads((CORPUS / "config.json").read_text())["vocab_size"]
        cls.config.write_text(CONFIG.format(vocabulary=vocabulary, corpus=CORPUS))

    @classmethod
    def train(cls, name, *arguments, ranks=4):
        cls.done("train", "--config", cls.config, "--nproc", ranks, "--set", f'log.dir="{cls.folder}/{name}"', *arguments)
        return [json.loads(line) for line in (cls.folder / name / "metrics.jsonl").read_text().splitlines()]

    def test_pulled_differences_change_no_loss_from_strategy_to_strategy(self):
        pull = ("--set", "link.pull=int4-difference")
        one = self.train("one", *pull, "--set", "parallel.strategies=['<1,1,1>']", ranks=1)
        plain = self.train("plain", "--set", "parallel.strategies=['<1,1,1>']", ranks=1)
        self.assertNotEqual(one[-1]["loss"], plain[-1]["loss"])
        runs = {strategy: self.train(f"pulled{number}", *pull, "--set", f"parallel.strategies=['{strategy}']")
                for number, strategy in enumerate(("4x<1,1,1>", "2x<2,1,1>", "<1,2,2,2>"))}
        for strategy, lines in runs.items():
            for own, other in zip(lines, one, strict=True):
                self.assertLess(abs(own["loss"] - other["loss"]), 1e-11 * other["loss"], (strategy, own["step"]))
        sent = [line["pull_bytes"] for line in runs["4x<1,1,1>"]]
        self.assertLess(sent[1], 0.5 * sent[0])

    def test_runs_resume_to_the_bit(self):
        for name, strategy in {"replicas": "4x<1,1,1>", "shared": "<1,1,4,4>"}.items():
            arguments = (*ALL, "--set", "checkpoint.every=4", "--set", f"parallel.strategies=['{strategy}']")
            whole = self.train(f"{name}_whole", *arguments)
            self.train(f"{name}_half", *arguments, "--set", "train.steps=4")
            rest = self.train(f"{name}_half", *arguments, "--resume", "auto")
            for key in ("loss", "grad_norm"):
                self.assertEqual([line[key] for line in rest[-4:]], [line[key] for line in whole[-4:]])

    def test_what_differences_come_to_outlives_a_lost_rank(self):
        arguments = ("--set", "link.pull=int4-difference", "--set", "train.steps=40", "--set", "elastic.snapshot_every=1",
                     "--set", "parallel.strategies=auto", "--set", "parallel.max_cp=1")
        whole = self.train("unlost", *arguments)
        command = ("train", "--config", self.config, "--nproc", 4, "--set", f'log.dir="{self.folder}/lost"', *arguments)
        process = subprocess.Popen([SLUICE, *map(str, command)], stderr=subprocess.PIPE, text=True)
        log = ""
        for line in process.stderr:
            log += line
            if re.search(r"step 8/", line):
                os.kill(a_worker(process.pid), signal.SIGKILL)
                break
        log += process.stderr.read()
        self.assertEqual(process.wait(), 0, log)
        lines = [json.loads(line) for line in (self.folder / "lost" / "metrics.jsonl").read_text().splitlines()]
        self.assertGreater(lines[-1]["restarts"], 0, log)
        for own, other in zip(lines, whole, strict=True):
            self.assertLess(abs(own["loss"] - other["loss"]), 1e-11 * other["loss"], own["step"])

    def test_when_a_save_ends_changes_no_loss(self):
        losses = [[line["loss"] for line in self.train(
            name, "--set", "link.pull=int4-difference", "--set", "checkpoint.every=3", "--set", f"checkpoint.async={word}")]
            for name, word in {"behind": "true", "waited": "false"}.items()]
        self.assertEqual(*losses)

    def test_words_for_other_numbers_than_are_computed_with_are_refused(self):
        for key in ("pull", "gather"):
            done = call("train", "--config", self.config, "--nproc", 1, "--set", f"link.{key}=float32", "--set",
                        "parallel.strategies=['<1,1,1>']", "--set", f'log.dir="{self.folder}/no"')
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"link.{key} is float32, but ranks compute with float64", done.stderr)

    def test_sums_and_gathers_shrink_and_stay_near(self):
        shared = ("--set", "parallel.strategies=['<1,1,4,4>']")
        wide, narrow = self.train("wide", *shared), self.train("narrow", *shared, *ALL)
        for own, other in zip(narrow, wide, strict=True):
            self.assertLess(own["fsdp_bytes"], 0.5 * other["fsdp_bytes"])
            self.assertLess(abs(own["loss"] - other["loss"]), 0.02 * other["loss"])

    def test_what_a_level_cannot_use_is_refused(self):
        for word, told in {"link.pull=int4": "int4-difference", "link.gather=int8-difference": "int8",
                           "link.push=['int4-difference', 'int8']": "two of them"}.items():
            done = call("train", "--config", self.config, "--set", word)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word.split("=")[0], done.stderr)
            self.assertIn(told, done.stderr)

    def test_devices_may_be_measured(self):
        alike = self.train("alike", "--set", "train.steps=40")
        measured = self.train("measured", "--set", "train.steps=40", "--set", "parallel.devices=measured")
        # Costs are assumed, so no rank takes what was planned.
        self.assertRegex((self.folder / "measured" / "rank-0.log").read_text(),
                         r"from step 12 on devices count as the last steps took: \d+ % on rank")
        for own, other in zip(measured, alike, strict=True):
            self.assertLess(abs(own["loss"] - other["loss"]), 1e-11 * other["loss"])

    def test_products_may_be_narrow(self):
        narrow = ("--set", "train.gemm_dtype=int8", "--set", "parallel.low_precision_layers=all", "--set", "train.steps=6")
        wide = self.train("exact", "--set", "train.steps=6")
        arguments = (*narrow, "--set", "checkpoint.every=3")
        lines = self.train("rounded", *arguments)
        self.assertIn("int8 products in 2 layers of devices as rank 0's", (self.folder / "rounded" / "rank-0.log").read_text())
        for own, other in zip(lines, wide, strict=True):
            self.assertNotEqual(own["loss"], other["loss"])
            self.assertLess(abs(own["loss"] - other["loss"]), 0.02 * other["loss"])
        self.train("rounded_half", *arguments, "--set", "train.steps=3")
        rest = self.train("rounded_half", *arguments, "--resume", "auto")
        self.assertEqual([line["loss"] for line in rest[-3:]], [line["loss"] for line in lines[-3:]])
        # Devices that are alike need none.
        self.train("none_needed", *narrow, "--set", "parallel.low_precision_layers=minimal")
        self.assertIn("no layer has int8 products", (self.folder / "none_needed" / "rank-0.log").read_text())
        refused = call("train", "--config", self.config, "--set", "train.gemm_dtype=int9")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("train.gemm_dtype", refused.stderr)
        self.assertIn("float8", refused.stderr)

    def test_one_key_multiplies_floats_of_8_bits_in_all_layers(self):
        steps = ("--set", "train.steps=40")
        wide = self.train("products_of_bfloat16", *steps, "--set", "train.gemm_dtype=bfloat16", "--set", "parallel.low_precision_layers=all")
        narrow = self.train("products_of_float8", *steps, "--set", "train.gemm_dtype=float8")
        log = (self.folder / "products_of_float8" / "rank-0.log").read_text()
        self.assertIn("float8 products in 2 layers of devices as rank 0's", log)
        self.assertNotEqual(narrow[0]["loss"], wide[0]["loss"])  # from the first step on
        of_wide, of_narrow = (sum(line["loss"] for line in lines[-10:]) / 10 for lines in (wide, narrow))
        self.assertLess(abs(of_narrow - of_wide), 0.01 * of_wide)
        self.assertLess(of_narrow, narrow[0]["loss"])

    def test_slower_kinds_are_planned_for_with_narrow_products(self):
        large = {"model.hidden": 4096, "model.heads": 32, "model.kv_heads": 32, "model.head_dim": 128, "model.ffn_hidden": 11008,
                 "data.tokens_per_step": 131072, "memory.device_gib": 75, "train.dtype": "bfloat16", "parallel.strategies": "auto"}
        words = [word for key, value in large.items() for word in ("--set", f"{key}={value}")]
        told = {format: self.done("train", "--config", self.config, "--dry-run", "--nproc", 0, "--cluster",
                                  "1x h100x8 + 1x a800x8", *words, "--set", f"train.gemm_dtype={format}")
                for format in ("none", "int8")}
        self.assertIn("int8 products in layers 0-1 of ranks 8-15", told["int8"])
        self.assertNotIn("products in layers", told["none"])
        refused = call("train", "--config", self.config, "--dry-run", "--nproc", 0, "--cluster", "1x h100x8 + 1x a800x8", *words,
                       "--set", "train.gemm_dtype=float8")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("train.gemm_dtype is float8, of which a800x8 has no products: choose none, int8 or bfloat16", refused.stderr)

    def test_what_the_wire_is_worth_is_said(self):
        told = self.done("plan", "--cluster", "h100x8", "--gpus", 64, "--model", "llama-7b", "--lengths",
                         TESTS.parent / "bench/data/system_lengths.txt", "--context", 16384, "--strategies", "8x<1,1,8,8>",
                         "--explain")
        self.assertIn('with push = ["int8", "int4"]', told)
        simulated = self.done("simulate", "--cluster", "h100x8", "--gpus", 16, "--model", "llama-7b", "--lengths",
                              TESTS.parent / "bench/data/system_lengths.txt", "--context", 4096, "--strategies", "2x<1,1,8,8>",
                              "--steps", 2, "--out", self.folder / "worth")
        self.assertIn("Step 0: With communication as configured the step takes", simulated)
        self.assertIn('with push = "bfloat16"', simulated)
        wire = json.loads((self.folder / "worth" / "simulation.json").read_text())["systems"]["sluice"]["compressed_communication"]
        self.assertEqual(wire[0]["setting"], "")
        self.assertLess(wire[1]["step_ns"], wire[0]["step_ns"])

    def test_a_cluster_of_several_kinds_is_planned_for(self):
        told = json.loads(self.done("plan", "--cluster", "1x h100x8 + 1x a800x8", "--model", "llama-7b", "--lengths",
                                    TESTS.parent / "bench/data/system_lengths.txt", "--context", 16384, "--json"))
        paces = {pipeline["device"]["slowdown_percent"] for pipeline in told["pipelines"]}
        self.assertEqual(paces, {100, 293})
        for pipeline in told["pipelines"]:
            self.assertEqual(len({rank < 8 for rank in pipeline["ranks"]}), 1)
        simulated = ("simulate", "--cluster", "1x h100x8 + 1x a800x8", "--model", "llama-7b", "--lengths",
                     TESTS.parent / "bench/data/system_lengths.txt", "--context", 16384, "--steps", 2, "--out",
                     self.folder / "simulated")
        self.done(*simulated)
        refused = call(*simulated, "--compare", "megatron")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("has devices of several kinds, for which megatron does not plan", refused.stderr)


if __name__ == "__main__":
    unittest.main()
