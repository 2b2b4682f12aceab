#!/usr/bin/env python3
"""Copies a run's metrics to Weights & Biases or MLflow while the run writes them (sluice_channel.py says how answers travel).

Usage: track_run.py wandb|mlflow RUN_DIRECTORY TARGET

TARGET is W&B's project or MLflow's experiment; servers, keys and offline modes are given by these packages' own
environment variables (WANDB_MODE, MLFLOW_TRACKING_URI, ...).
  start-up -> K, once the package has opened its run
  E        -> K, once all lines of metrics.jsonl are copied and the package has closed its run; or X, uint64 size and a message
The process ends likewise, without an answer, when its input ends. RUN_DIRECTORY/tracking.json keeps which run of the
package this is, the last step that was copied and the validation sets whose evaluation after it was, so that a run which continues
is continued there, too, and nothing is copied twice.
"""

import json
import math
import pathlib
import select
import sys
import time
import tomllib

import sluice_channel as channel

PAUSE_S = 1.0


class WeightsAndBiases:
    name = "wandb"

    def __init__(self, directory, project, known, config):
        self.package = channel.package("wandb")
        self.run = self.package.init(project=project, name=directory.name, dir=str(directory), config=config,
                                     id=known or None, resume="allow")
        self.id = self.run.id

    def log(self, step, numbers):
        self.run.log(numbers, step=step)

    def close(self):
        self.run.finish()


class MLflow:
    name = "mlflow"

    def __init__(self, directory, experiment, known, config):
        self.package = channel.package("mlflow")
        self.package.set_experiment(experiment)
        self.run = self.package.start_run(run_id=known or None, run_name=None if known else directory.name)
        self.id = self.run.info.run_id
        if not known:
            flat = {f"{section}.{key}": str(value)[:500] for section, table in config.items() if isinstance(table, dict)
                    for key, value in table.items()}
            self.package.log_params(flat)

    def log(self, step, numbers):
        self.package.log_metrics(numbers, step=step)

    def close(self):
        self.package.end_run()


def numbers_of(line):
    """The scalars of a line, by names that charts group: those of evaluations begin with validation/."""
    evaluation = "validation_loss" in line
    prefix = f"validation/{line['set']}/" if line.get("set") else "validation/" if evaluation else ""
    names = {"validation_loss": "loss"} if evaluation else {}
    return {prefix + names.get(key, key): value for key, value in line.items()
            if key != "step" and isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)}


class Copy:
    """What of metrics.jsonl has been copied."""

    def __init__(self, directory, tracker_class, target):
        self.path, self.record = directory / "metrics.jsonl", directory / "tracking.json"
        self.known = self.read_record()
        own = self.known.get(tracker_class.name, {})
        config = directory / "config.toml"
        self.tracker = tracker_class(directory, target, own.get("run"),
                                     tomllib.loads(config.read_text(encoding="utf-8")) if config.exists() else {})
        self.step = own.get("step", -1)
        self.evaluated = own.get("evaluated", [])  # validation sets, after that step
        self.offset = 0
        self.keep_record()

    def read_record(self):
        try:
            found = json.loads(self.record.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def keep_record(self):
        self.known = {**self.read_record(), self.tracker.name: {"run": self.tracker.id, "step": self.step, "evaluated": self.evaluated}}
        part = self.record.with_suffix(f".{self.tracker.name}.part")
        part.write_text(json.dumps(self.known) + "\n", encoding="utf-8")
        part.replace(self.record)

    def is_new(self, line):
        late = line["step"] == self.step and "validation_loss" in line  # an evaluation whose step has been copied
        return line["step"] > self.step or (late and line.get("set", "") not in self.evaluated)

    def go_on(self):
        """Copies the whole lines that have come. A file that became shorter is one that a run writes anew."""
        try:
            with open(self.path, "rb") as file:
                self.offset = self.offset if file.seek(0, 2) >= self.offset else 0
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[:data.rfind(b"\n") + 1]
        self.offset += len(whole)
        pending = {}  # a step's own line and its evaluations are one entry: W&B takes none of a step behind the next
        for text in whole.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and isinstance(line.get("step"), int) and self.is_new(line):
                numbers, sets = pending.setdefault(line["step"], ({}, []))
                numbers.update(numbers_of(line))
                sets += [line.get("set", "")] if "validation_loss" in line else []
        for step, (numbers, sets) in sorted(pending.items()):
            self.tracker.log(step, numbers)
            self.evaluated = [*(self.evaluated if step == self.step else []), *sets]
            self.step = step
        if pending:
            self.keep_record()


def main():
    kind, directory, target = sys.argv[1:]
    try:
        copy = Copy(pathlib.Path(directory), {"wandb": WeightsAndBiases, "mlflow": MLflow}[kind], target)
    except channel.Lacking as error:
        return channel.tell_lacking(error)
    except Exception as error:
        return channel.tell(channel.refusal(f"log.{kind}: {type(error).__name__}: {channel.one_line(error)}"))
    channel.tell(b"K")
    fault, told = None, b""
    while not select.select([channel.source], [], [], PAUSE_S)[0]:
        fault = step_or_fault(copy, fault)
    told = channel.source.read(1)
    fault = step_or_fault(copy, fault)
    try:
        copy.tracker.close()
    except Exception as error:
        fault = fault or error
    if told:
        channel.tell(b"K" if fault is None else channel.refusal(f"log.{kind}: {type(fault).__name__}: {channel.one_line(fault)}"))


def step_or_fault(copy, fault):
    """Goes on copying. A server that fails is asked again at the next step; the last fault is told at the end."""
    try:
        copy.go_on()
        return fault
    except Exception as error:
        time.sleep(PAUSE_S)
        return error


if __name__ == "__main__":
    main()
