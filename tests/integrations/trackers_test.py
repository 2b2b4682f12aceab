"""log.wandb and log.mlflow with the released clients of Weights & Biases and MLflow, without a network: what they recorded is read
back by themselves."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
for name in ("tests", "tests/cli", "tests/integration"):
    sys.path.insert(0, str(ROOT / name))

from commands import HANG_S, SLUICE, CommandTest  # noqa: E402
from dependencies import DEPENDENCIES  # noqa: E402
from model_commands_test import VOCABULARY, configuration  # noqa: E402
from run_notes_test import write_corpus  # noqa: E402

PYTHON = DEPENDENCIES / "integrations-trackers/bin/python"
READ_MLFLOW = """
import json, mlflow
client = mlflow.MlflowClient()
run, = mlflow.search_runs(search_all_experiments=True, output_format="list")
names = ("loss", "validation/loss", "grad_norm")
print(json.dumps([mlflow.get_experiment(run.info.experiment_id).name, run.info.status,
                  {name: [[each.step, each.value] for each in client.get_metric_history(run.info.run_id, name)] for name in names}]))
"""
# An offline run is a log in LevelDB's format: blocks of 32 KiB, behind a header of 7 bytes, with records that may be cut.
READ_WANDB = """
import json, pathlib, struct, sys
from wandb.proto import wandb_internal_pb2

def records(data):
    at, whole = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""

losses = []
for path in sorted(pathlib.Path(sys.argv[1]).glob("wandb/offline-run-*/*.wandb")):
    for record in records(path.read_bytes()):
        row = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        if "loss" in row:
            losses.append([row["_step"], row["loss"]])
print(json.dumps(losses))
"""


@unittest.skipUnless(PYTHON.exists(), "no clients of trackers: tools/bootstrap --integrations installs them")
class Trackers(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = cls.folder / "run.toml"
        cls.config.write_text(configuration(cls.folder, steps=4).replace("[train]", "validation_fraction = 0.2\n[train]\neval_every = 2"))
        write_corpus(cls.folder / "corpus/corpus", [[i % VOCABULARY, *range(1, 30 + 13 * (i % 9))] for i in range(40)])
        cls.variables = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true",
                         "MLFLOW_TRACKING_URI": f"sqlite:///{cls.folder}/mlflow.db"}

    def train(self, *settings, resume=()):
        told = [part for each in (f'log.dir="{self.folder}/run"', 'log.wandb="project"', 'log.mlflow="experiment"', *settings)
                for part in ("--set", each)]
        done = subprocess.run([SLUICE, "train", "--config", self.config, "--nproc", "1", "--python", PYTHON, *told, *resume],
                              capture_output=True, text=True, env=self.variables, timeout=HANG_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return {line["step"]: line["loss"] for line in map(json.loads, (self.folder / "run/metrics.jsonl").read_text().splitlines()) if "loss" in line}

    def read(self, script, *arguments):
        done = subprocess.run([PYTHON, "-c", script, *arguments], capture_output=True, text=True, env=self.variables, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    def test_both_have_every_step_once_also_of_a_run_that_goes_on(self):
        self.train()
        losses = self.train("train.steps=6", resume=("--resume", "auto"))
        self.assertEqual(sorted(losses), list(range(6)))
        experiment, status, history = self.read(READ_MLFLOW)
        self.assertEqual((experiment, status), ("experiment", "FINISHED"))
        self.assertEqual(dict(history["loss"]), losses)
        self.assertEqual([step for step, _ in history["validation/loss"]], sorted({step for step, _ in history["validation/loss"]}))
        self.assertEqual({step for step, _ in history["grad_norm"]}, set(losses))
        self.assertEqual(self.read(READ_WANDB, self.folder / "run"), [list(each) for each in sorted(losses.items())])


if __name__ == "__main__":
    unittest.main()
