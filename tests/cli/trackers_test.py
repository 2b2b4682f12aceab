"""log.wandb and log.mlflow: a run's metrics at Weights & Biases and MLflow. Small packages stand in for theirs."""

import json
import os
import subprocess
import sys
import unittest

from commands import HANG_S, SLUICE, CommandTest
from model_commands_test import VOCABULARY, configuration
from run_notes_test import write_corpus

WANDB = '''
import json, os, pathlib

class Run:
    def __init__(self, id, folder):
        self.id, self.folder = id or "run1", pathlib.Path(folder)

    def log(self, numbers, step):
        if "refuses" in os.environ.get("TEST_WANDB", ""):
            raise OSError("no route to the server\\nat all")
        with open(self.folder / "logged.jsonl", "a") as file:
            file.write(json.dumps({"step": step, "run": self.id, **numbers}) + "\\n")

    def finish(self):
        (self.folder / "finished").write_text("")

def init(project, name, dir, config, id, resume):
    if project == "absent":
        raise ValueError("no project\\ncalled absent")
    print("what packages print is no answer")
    pathlib.Path(dir, "init.json").write_text(json.dumps([project, name, config["train"]["steps"], id, resume]))
    return Run(id, dir)
'''
MLFLOW = '''
import json, pathlib, types

def set_experiment(name):
    globals()["experiment"] = name

def start_run(run_id, run_name):
    return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id or "m1"))

def log_params(params):
    assert all(len(value) <= 500 for value in params.values())

def log_metrics(numbers, step):
    with open(pathlib.Path(__file__).with_name("mlflow.jsonl"), "a") as file:
        file.write(json.dumps({"step": step, "experiment": experiment, **numbers}) + "\\n")

def end_run():
    pass
'''


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Trackers(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.packages = cls.folder / "packages"
        cls.packages.mkdir()
        (cls.packages / "wandb.py").write_text(WANDB)
        (cls.packages / "mlflow.py").write_text(MLFLOW)
        cls.config = cls.folder / "run.toml"
        cls.config.write_text(configuration(cls.folder, steps=4).replace("[train]", "validation_fraction = 0.2\n[train]\neval_every = 2"))
        write_corpus(cls.folder / "corpus/corpus", [[i % VOCABULARY, *range(1, 30 + 13 * (i % 9))] for i in range(40)])

    def train(self, name, *settings, resume=None, packages=True, **variables):
        told = [part for each in (f'log.dir="{self.folder / name}"', *settings) for part in ("--set", each)]
        environment = {**os.environ, "PYTHONPATH": str(self.packages) if packages else "", **variables}
        return subprocess.run([SLUICE, "train", "--config", self.config, "--nproc", "1", "--python", sys.executable, *told,
                               *(["--resume", resume] if resume else [])], capture_output=True, text=True, env=environment,
                              timeout=HANG_S)

    def test_metrics_and_evaluations_are_copied_and_a_run_goes_on(self):
        result = self.train("été", 'log.wandb="texts"')
        self.assertEqual(result.returncode, 0, result.stderr)
        run = self.folder / "été"
        self.assertEqual(json.loads((run / "init.json").read_text()), ["texts", "été", 4, None, "allow"])
        self.assertTrue((run / "finished").exists())
        logged = {}
        for line in lines_of(run / "logged.jsonl"):
            logged.setdefault(line["step"], {}).update(line)
        self.assertEqual(sorted(logged), [0, 1, 2, 3])
        steps = {line["step"]: line for line in lines_of(run / "metrics.jsonl") if "loss" in line}
        self.assertEqual([logged[i]["loss"] for i in range(4)], [steps[i]["loss"] for i in range(4)])
        self.assertIn("validation/loss", logged[1])
        self.assertIn("validation/loss", logged[3])
        self.assertNotIn("strategy", logged[0])
        # Two steps more of the same run, and none twice.
        before = len(lines_of(run / "logged.jsonl"))
        result = self.train("été", 'log.wandb="texts"', "train.steps=6", resume="auto")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads((run / "init.json").read_text())[3], "run1")
        self.assertEqual({line["step"] for line in lines_of(run / "logged.jsonl")[before:]}, {4, 5})

    def test_mlflow_has_its_experiment(self):
        result = self.train("m", 'log.mlflow="my experiment"', 'log.wandb="beside"')
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = lines_of(self.packages / "mlflow.jsonl")
        self.assertEqual({line["step"] for line in lines}, {0, 1, 2, 3})
        self.assertEqual({line["experiment"] for line in lines}, {"my experiment"})
        self.assertEqual(set(json.loads((self.folder / "m/tracking.json").read_text())), {"wandb", "mlflow"})

    def test_a_server_that_fails_costs_the_run_nothing_and_is_told(self):
        result = self.train("down", 'log.wandb="texts"', TEST_WANDB="refuses")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("not all metrics are at log.wandb: log.wandb: OSError: no route to the server at all", result.stderr)
        self.assertEqual(sum("loss" in line for line in lines_of(self.folder / "down/metrics.jsonl")), 4)

    def test_what_cannot_begin_is_said_before_the_first_step(self):
        result = self.train("absent", 'log.wandb="absent"')
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("log.wandb: ValueError: no project called absent", result.stderr)
        result = self.train("lacking", 'log.mlflow="x"', packages=False)
        if "has no package `mlflow`" in result.stderr:  # unless this Python has it
            self.assertEqual(result.returncode, 2)
            self.assertIn("--python", result.stderr)
        self.assertNotIn("Traceback", result.stderr)


if __name__ == "__main__":
    unittest.main()
