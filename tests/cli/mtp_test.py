"""The layer that predicts the token after the next one (MTP): carried, or trained beside the head and exported."""

import json
import pathlib
import shutil
import struct
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "integration"))

from commands import CommandTest, call  # noqa: E402
from harness import read_safetensors  # noqa: E402
from tensor_files import read_tensors, write_tensors  # noqa: E402

GLM = TESTS / "data" / "parity" / "glm4_moe"
STEPS = 12
TRAINS = ("--set", 'train.mtp="train"')
AROUND = ("enorm", "hnorm", "shared_head.norm")
COPIES = {"embed_tokens.weight": "model.embed_tokens.weight", "shared_head.head.weight": "lm_head.weight"}


def with_mtp(folder):
    """The fixture of GLM 4.5 with an MTP layer, whose own layer is a copy of the model's last one. Returns its path."""
    shutil.copytree(GLM, folder)
    config = json.loads((folder / "config.json").read_text())
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    config.pop("num_mtp_layers", None)
    config["num_nextn_predict_layers"] = 1
    (folder / "config.json").write_text(json.dumps(config))
    tensors = dict(read_tensors(folder / "model.safetensors")[0])
    last, own = f"model.layers.{layers - 1}.", f"model.layers.{layers}."
    tensors |= {own + name.removeprefix(last): tensor for name, tensor in tensors.items() if name.startswith(last)}
    for name in AROUND:
        tensors[f"{own}{name}.weight"] = ("F32", [hidden], struct.pack(f"<{hidden}f", *([1.0] * hidden)))
    values = [((7919 * i) % 101 - 50) / 1000 for i in range(2 * hidden * hidden)]
    tensors[own + "eh_proj.weight"] = ("F32", [hidden, 2 * hidden], struct.pack(f"<{len(values)}f", *values))
    tensors |= {own + copy: tensors[original] for copy, original in COPIES.items()}
    write_tensors(folder / "model.safetensors", tensors)
    return own


class Mtp(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.folder / "modèle"
        cls.own = with_mtp(cls.model)
        cls.config = cls.folder / "run.toml"
        cls.config.write_text(f"""
[model]
hf = "{cls.model}"
[data]
train = [["{GLM}/corpus", 1.0]]
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
strategies = ["<1,1,1>"]
calibration = "analytic"
[memory]
device_gib = 1.0
margin_gib = 0.1
[log]
tensorboard = false
""")

    @classmethod
    def train(cls, name, ranks, *arguments):
        cls.done("train", "--config", cls.config, "--nproc", ranks, "--set", f'log.dir="{cls.folder}/{name}"', *arguments)
        return [json.loads(line) for line in (cls.folder / name / "metrics.jsonl").read_text().splitlines()]

    def refused(self, *arguments):
        result = call("train", "--config", self.config, *arguments)
        self.assertEqual(result.returncode, 2)
        return result.stderr

    def test_it_learns_beside_the_head_under_any_strategy(self):
        alone = self.train("alone", 1, *TRAINS)
        self.assertLess(alone[-1]["mtp_loss"], alone[0]["mtp_loss"])
        for ranks, strategies in ((4, ["<2,2,1>", "<1,1,4,4,4>", "<1,2,2,2>"]), (2, ["<1,1,2>"])):
            together = self.train(f"together{ranks}", ranks, *TRAINS, "--set", f"parallel.strategies={json.dumps(strategies)}",
                                  "--set", 'parallel.select="cycle"')
            for own, other in zip(together, alone, strict=True):
                for key in ("loss", "mtp_loss", "grad_norm"):
                    self.assertLess(abs(own[key] - other[key]), 1e-11 * abs(other[key]), (key, own["step"]))

    def test_kept_it_comes_back_as_it_was(self):
        lines = self.train("kept", 1)
        self.assertNotIn("mtp_loss", lines[0])
        self.done("export", self.folder / "kept", "--out", self.folder / "kept-model")
        before, after = (read_tensors(path / "model.safetensors")[0] for path in (self.model, self.folder / "kept-model"))
        self.assertEqual(set(before), set(after))
        for name in before:
            if name.startswith(self.own):
                self.assertEqual(before[name], after[name], name)

    def test_trained_it_is_saved_resumed_and_exported_under_its_names(self):
        whole = self.train("whole", 2, *TRAINS, "--set", 'parallel.strategies=["<1,2,1>"]', "--set", "checkpoint.every=6")
        self.train("half", 1, *TRAINS, "--set", "train.steps=6", "--set", "checkpoint.every=6")
        rest = self.train("half", 2, *TRAINS, "--resume", "auto", "--set", 'parallel.strategies=["<2,1,1>"]')
        for own, other in zip(rest, whole, strict=True):
            for key in ("loss", "mtp_loss"):
                self.assertLess(abs(own[key] - other[key]), 1e-9 * abs(other[key]), (key, own["step"]))
        out = self.folder / "model"
        self.done("export", self.folder / "whole", "--out", out)
        before, after = (read_safetensors(path / "model.safetensors") for path in (self.model, out))
        self.assertEqual(set(before), set(after))
        for name in before:
            if name.startswith(self.own) and not name.endswith("e_score_correction_bias"):
                self.assertNotEqual(before[name], after[name], name)
        for copy, original in COPIES.items():
            self.assertEqual(after[self.own + copy], after[original])
        self.assertEqual(json.loads((out / "config.json").read_text())["num_nextn_predict_layers"], 1)
        # An exported layer trains on from where it was.
        again = self.train("again", 1, *TRAINS, "--set", f'model.hf="{out}"', "--set", "train.steps=1")
        self.assertLess(again[0]["mtp_loss"], whole[0]["mtp_loss"])

    def test_a_checkpoint_with_it_is_not_resumed_without(self):
        self.train("with", 1, *TRAINS, "--set", "train.steps=2")
        self.assertIn("resume with the train.mtp it was made with",
                      self.refused("--set", f'log.dir="{self.folder}/with"', "--set", "train.steps=3", "--resume", "auto"))

    def test_runs_that_cannot_train_it_say_why(self):
        for arguments, reason in (
                (("--set", "lora.rank=2"), 'train.mtp is "train", but lora.rank trains adapters'),
                (("--set", 'head.kind="embed"', "--set", 'head.positives=["near"]'), 'train.mtp is "train", but head.kind gives the model another end'),
                (("--set", f'model.hf="{TESTS}/data/parity/qwen3"'), "Sluice trains no layers of qwen3"),
                (("--set", f'model.hf="{GLM}"'), "config.json names no layers that predict further tokens")):
            with self.subTest(reason):
                self.assertIn(reason, self.refused(*TRAINS, *arguments))
        self.assertIn("train.mtp_loss_weight is 0.3, which has an effect only with train.mtp",
                      self.refused("--set", "train.mtp_loss_weight=0.3"))


if __name__ == "__main__":
    unittest.main()
