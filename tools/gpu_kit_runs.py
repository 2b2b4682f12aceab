"""Training runs on one GPU, judged: each prints a line of JSON with its figures and ends 1 when they are not right.

    gpu_kit_runs.py corpus|learns|agree|offload SLUICE SCRATCH
"""

import json
import pathlib
import statistics
import subprocess
import sys
import sysconfig

STEPS_TO_LEARN = 200
LEARNT_NATS = 1.5          # that the loss must have fallen by
PREDICTION_ERROR = 0.05    # of the median step
AGREEMENT = 1e-9           # of losses in FP64, relative
LEAST_OVERLAP = 0.8        # of transfers to and from host memory, under computation

CORPUS = ("asyncio", "email", "http", "logging", "multiprocessing", "unittest", "xml")
SMALL = {"model.layers": 4, "model.hidden": 256, "model.heads": 4, "model.kv_heads": 2, "model.ffn_hidden": 688,
         "model.vocab": 2048, "data.context_length": 2048, "data.tokens_per_step": 16384}
LARGER = {"model.layers": 12, "model.hidden": 2048, "model.heads": 16, "model.kv_heads": 8, "model.ffn_hidden": 5632,
          "model.vocab": 2048, "data.context_length": 8192, "data.tokens_per_step": 65536}


class Runs:
    def __init__(self, sluice, scratch):
        self.sluice, self.scratch = sluice, scratch
        self.corpus = scratch / "corpus"

    def run(self, *arguments):
        done = subprocess.run([self.sluice, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"sluice {' '.join(map(str, arguments))} ended with {done.returncode}\n{done.stdout[-2000:]}\n"
                     f"{done.stderr[-4000:]}")

    def make_corpus(self):
        """Of some packages of Python's standard library, cut as the quick start's: a tokenizer takes minutes for all."""
        if not (self.corpus / "corpus.idx").exists():
            library = pathlib.Path(sysconfig.get_paths()["stdlib"])
            self.run("corpus", "build", *(library / package for package in CORPUS), "--out", self.corpus,
                     "--train-tokenizer", 2048, "--delimiter", "\n\n\n")

    def train(self, name, ranks, settings):
        """The run's lines of metrics, steps only."""
        folder = self.scratch / name
        config = self.scratch / f"{name}.toml"
        shape = {key: value for key, value in settings.items() if key.startswith("model.")}
        model = "\n".join(f"{key[6:]} = {value}" for key, value in shape.items())
        config.write_text(f"[model]\n{model}\n[data]\ntrain = [[{json.dumps(str(self.corpus / 'corpus'))}, 1.0]]\n")
        values = {"log.dir": folder, "log.tensorboard": "false", "train.device": "cuda"} | {
            key: value for key, value in settings.items() if key not in shape}
        options = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        self.run("train", "--config", config, "--nproc", ranks, *options)
        lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if "loss" in line]


def finish(right, figures):
    print(json.dumps(figures))
    return 0 if right else 1


def learns(runs):
    steps = runs.train("learns", 1, SMALL | {"train.steps": STEPS_TO_LEARN, "train.dtype": "bfloat16",
                                             "optimizer.lr": 2e-3})
    late = steps[len(steps) // 2:]
    error = statistics.median(step["time_ms"] / step["predicted_ms"] for step in late) - 1
    first, last = steps[0]["loss"], statistics.mean(step["loss"] for step in steps[-10:])
    return finish(first - last >= LEARNT_NATS,
                  {"steps": len(steps), "first_loss": first, "last_loss": last,
                   "median_time_over_prediction": 1 + error, "prediction_within_goal": abs(error) <= PREDICTION_ERROR,
                   "tokens_per_s": statistics.median(step["tokens_per_s"] for step in late),
                   "peak_bytes": max(step["peak_bytes"] for step in steps),
                   "median_peak_over_prediction": statistics.median(
                       step["peak_bytes"] / step["predicted_peak_bytes"] for step in late)})


def agree(runs):
    """Four ranks on one GPU, changing strategies, train as one does."""
    common = SMALL | {"train.steps": 8, "train.dtype": "float64", "data.tokens_per_step": 4096}
    lone = runs.train("lone", 1, common)
    strategies = ["4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "<1,2,1> + <2,1,1>", "<2,2,1>", "<1,1,4>"]
    four = runs.train("four", 4, common | {"parallel.strategies": json.dumps(strategies),
                                           "parallel.select": json.dumps("cycle")})
    worst = max(abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in zip(four, lone, strict=True))
    return finish(worst <= AGREEMENT, {"steps": len(four), "worst_relative_difference_of_losses": worst})


def overlap(events):
    """The share of offloads' and fetches' time during which a cell computes."""
    spans = {True: [], False: []}
    for event in events:
        if event.get("ph") == "X":
            transfer = event["cat"] in ("offload", "fetch")
            if transfer or event["cat"].startswith(("forward", "backward")):
                spans[transfer].append((event["ts"], event["ts"] + event["dur"]))
    total = sum(end - begin for begin, end in spans[True])
    shared = sum(max(0, min(end, cell_end) - max(begin, cell_begin))
                 for begin, end in spans[True] for cell_begin, cell_end in spans[False])
    return shared / total if total else None


def offload(runs):
    runs.train("offload", 1, LARGER | {"train.steps": 6, "train.dtype": "bfloat16", "memory.offload": 1.0,
                                       "memory.recompute": json.dumps("none"), "log.trace_steps": "[5]"})
    events = json.loads((runs.scratch / "offload" / "trace-5.json").read_text())["traceEvents"]
    share = overlap(events)
    return finish(share is not None and share >= LEAST_OVERLAP, {"overlapped_share_of_transfers": share})


def main():
    name, sluice, scratch = sys.argv[1:]
    runs = Runs(sluice, pathlib.Path(scratch))
    runs.make_corpus()
    return {"corpus": lambda runs: 0, "learns": learns, "agree": agree, "offload": offload}[name](runs)


if __name__ == "__main__":
    sys.exit(main())
