"""Training runs on one GPU, judged: each prints a line of JSON with its figures and ends 1 when they are not right.

    gpu_kit_runs.py corpus|learns|agree|offload|generates|reinforces|calibrate|foreseen|qwen3-0.6b|qwen3-8b SLUICE SCRATCH
"""

import array
import collections
import functools
import itertools
import json
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import sysconfig
import time

STEPS_TO_LEARN = 200
LEARNT_NATS = 1.5          # that the loss must have fallen by
PREDICTION_ERROR = 0.05    # of the median step, and of the peak of memory
PROFILE_SECONDS = 60
AGREEMENT = 1e-9           # of losses in FP64, relative
SAID_TOKENS = 24
ROLLOUT_GAP = 1e-9         # between log-probabilities in FP64, of a rollout and of its first update
LEAST_OVERLAP = 0.8        # of transfers to and from host memory, under computation

CORPUS = ("asyncio", "email", "http", "logging", "multiprocessing", "unittest", "xml")
SMALL = {"model.layers": 4, "model.hidden": 256, "model.heads": 4, "model.kv_heads": 2, "model.ffn_hidden": 688,
         "model.vocab": 2048, "data.context_length": 2048, "data.tokens_per_step": 16384}
LARGER = {"model.layers": 12, "model.hidden": 2048, "model.heads": 16, "model.kv_heads": 8, "model.ffn_hidden": 5632,
          "model.vocab": 2048, "data.context_length": 8192, "data.tokens_per_step": 65536}
# 8B's dimensions, as many layers and as large a vocabulary as fit into 80 GB with all of the optimiser's states.
EIGHT_B = {"model.layers": 4, "model.hidden": 4096, "model.heads": 32, "model.kv_heads": 8, "model.ffn_hidden": 14336,
           "model.vocab": 32768, "data.context_length": 16384, "data.tokens_per_step": 65536}
ROOT = pathlib.Path(__file__).resolve().parent.parent
LENGTHS = ROOT / "bench" / "data" / "wikipedia_lengths.txt"
MOST_DOCUMENTS = 20000
# Tokens a second of BF16 LoRA on one H100, rank 16, packed sequences of 2,048: Surogate's page of benchmarks (August 2026).
PUBLISHED_LORA = {"qwen3-0.6b": 53_900, "qwen3-8b": 10_200}
ADAPTED = {"data.context_length": 2048, "data.tokens_per_step": 32768, "train.steps": 24, "train.dtype": "bfloat16",
           "lora.rank": 16, "lora.alpha": 32}


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

    def make_random_corpus(self, name, lengths, vocab):
        """A corpus of random tokens whose documents are so long; its prefix. REQUIRES: vocab <= 2^16."""
        prefix = self.scratch / name
        if not prefix.with_suffix(".idx").exists():
            tokens = array.array("H", random.Random(1).choices(range(vocab), k=sum(lengths)))
            begins = [2 * begin for begin in itertools.accumulate(lengths, initial=0)]
            prefix.with_suffix(".bin").write_bytes(tokens.tobytes())
            prefix.with_suffix(".idx").write_bytes(
                struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, len(lengths), len(lengths) + 1)
                + array.array("i", lengths).tobytes() + array.array("q", begins[:-1]).tobytes()
                + array.array("q", range(len(lengths) + 1)).tobytes())
        return prefix

    def make_measured_lengths(self):
        """One whose documents are as long as a real one's."""
        longest = EIGHT_B["data.context_length"]
        lengths = [min(max(2, int(line)), longest) for line in
                   itertools.islice(LENGTHS.read_text().split(), MOST_DOCUMENTS)]
        return self.make_random_corpus("lengths", lengths, EIGHT_B["model.vocab"])

    def configure(self, name, settings, corpus, more=""):
        """The words that name a configuration of the run, and its directory."""
        folder = self.scratch / name
        config = self.scratch / f"{name}.toml"
        shape = {key: value for key, value in settings.items() if key.startswith("model.")}
        model = "\n".join(f"{key[6:]} = {json.dumps(value)}" for key, value in shape.items())
        config.write_text(f"[model]\n{model}\n[data]\ntrain = [[{json.dumps(str(corpus))}, 1.0]]\n{more}")
        values = {"log.dir": folder, "log.tensorboard": "false", "train.device": "cuda"} | {
            key: value for key, value in settings.items() if key not in shape}
        return ["--config", config, *(word for key, value in values.items() for word in ("--set", f"{key}={value}"))], folder

    def train(self, name, ranks, settings, corpus=None, more=""):
        """The run's lines of metrics, steps only."""
        words, folder = self.configure(name, settings, corpus or self.corpus / "corpus", more)
        self.run("train", *words, "--nproc", ranks)
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


def calibrate(runs):
    """Measures this GPU for the 8B layers: the file that `[parallel] calibration` and data/calibrations want."""
    out = runs.scratch / "calibration.json"
    words, _ = runs.configure("profile", EIGHT_B | {"train.dtype": "bfloat16"}, runs.make_measured_lengths())
    runs.run("profile", *words, "--nproc", 1, "--seconds", PROFILE_SECONDS, "--out", out)
    return finish(True, {"calibration": json.loads(out.read_text())})


def node_ratios(events):
    """{kind of node: (measured ms, measured ÷ predicted)} of a step's timeline, and of the node that is furthest off."""
    measured, predicted, worst = collections.Counter(), collections.Counter(), None
    for event in events:
        expected_us = event.get("args", {}).get("predicted_ns", 0) / 1e3
        if event.get("ph") != "X" or expected_us <= 0:
            continue
        measured[event["cat"]] += event["dur"]
        predicted[event["cat"]] += expected_us
        off_us = abs(event["dur"] - expected_us)
        if worst is None or off_us > worst["off_us"]:
            worst = {"node": event["name"], "off_us": off_us, "measured_us": event["dur"], "predicted_us": expected_us}
    return {kind: [measured[kind] / 1e3, measured[kind] / predicted[kind]] for kind in measured}, worst


def foreseen(runs):
    """Steps of the 8B layers against what the calibration foretells: times, each kind of node, memory."""
    calibration = runs.scratch / "calibration.json"
    if not calibration.exists():
        calibrate(runs)
    traced = 10
    steps = runs.train("foreseen", 1, EIGHT_B | {"train.steps": 16, "train.dtype": "bfloat16",
                                                 "parallel.calibration": calibration, "log.trace_steps": f"[{traced}]"},
                       runs.make_measured_lengths())
    late = steps[4:]
    ratio = statistics.median(step["time_ms"] / step["predicted_ms"] for step in late)
    memory = statistics.median(step["peak_bytes"] / step["predicted_peak_bytes"] for step in late)
    events = json.loads((runs.scratch / "foreseen" / f"trace-{traced}.json").read_text())["traceEvents"]
    kinds, worst = node_ratios(events)
    return finish(abs(ratio - 1) <= PREDICTION_ERROR and abs(memory - 1) <= PREDICTION_ERROR,
                  {"median_time_over_prediction": ratio, "median_peak_over_prediction": memory,
                   "step_ms": statistics.median(step["time_ms"] for step in late),
                   "tokens_per_s": statistics.median(step["tokens_per_s"] for step in late),
                   "kinds_ms_and_over_prediction": kinds, "node_furthest_off": worst})


def generates(runs):
    """The likeliest tokens are the same on the GPU and on the CPU."""
    runs.train("speaks", 1, SMALL | {"train.steps": 10, "train.dtype": "bfloat16", "optimizer.lr": 2e-3})
    said, seconds = {}, {}
    for device in ("cpu", "cuda"):
        out, begin = runs.scratch / f"said-{device}.jsonl", time.monotonic()
        runs.run("generate", "--model", runs.scratch / "speaks", "--prompt", "import ", "--tokens", SAID_TOKENS, "--temperature", 0,
                 "--dtype", "float64", "--device", device, "--out", out)
        said[device], seconds[device] = json.loads(out.read_text().splitlines()[0])["ids"], time.monotonic() - begin
    return finish(said["cpu"] == said["cuda"], {"tokens": len(said["cuda"]), "seconds": seconds})


RL = """
[rl]
algorithm = "grpo"
prompts_per_step = 4
num_generations = 4
updates_per_rollout = 2
max_completion_length = 16
reward = ["regex:^[0-4 ]*5"]
"""


def reinforces(runs):
    """Rollouts on the GPU know what their updates find."""
    folder = runs.scratch / "sorting"
    folder.mkdir(exist_ok=True)
    subprocess.run([sys.executable, ROOT / "examples/rl/sorting.py", folder, "3"], check=True)
    runs.run("corpus", "build", folder / "problems.jsonl", "--chat", "--tokenizer", folder / "tokenizer.json", "--out",
             folder / "problems")
    shape = {"model.layers": 2, "model.hidden": 64, "model.heads": 4, "model.kv_heads": 2, "model.ffn_hidden": 128, "model.vocab": 64,
             "data.context_length": 128, "train.steps": 4, "train.dtype": "float64"}
    steps = runs.train("reinforces", 1, shape, folder / "problems" / "corpus", more=RL)
    gap = max(step.get("rollout_logprob_diff") or 0 for step in steps if step.get("sampling_rounds") is not None)
    return finish(len(steps) == 4 and gap <= ROLLOUT_GAP, {"steps": len(steps), "worst_gap_of_first_updates": gap})


def adapts(runs, model, settings=ADAPTED):
    """LoRA on a public model's shape with random weights, beside the published figure: speed does not depend on weights."""
    folder = runs.scratch / f"{model}-shape"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(json.loads((ROOT / "data/models.json").read_text())[model]))
    length = settings["data.context_length"]
    corpus = runs.make_random_corpus("equal", [length] * 1000, 1 << 15)
    steps = runs.train(model, 1, settings | {"model.hf": str(folder)}, corpus)
    late = steps[len(steps) // 4:]
    tokens_per_s = statistics.median(step["tokens_per_s"] for step in late)
    return finish(True, {"model": model, "tokens_per_s": tokens_per_s, "published_tokens_per_s": PUBLISHED_LORA[model],
                         "ratio": tokens_per_s / PUBLISHED_LORA[model],
                         "peak_bytes": max(step["peak_bytes"] for step in steps)})


NEED_TEXT = {"corpus": lambda runs: 0, "learns": learns, "agree": agree, "offload": offload, "generates": generates}
NEED_NEITHER = {"reinforces": reinforces, "calibrate": calibrate, "foreseen": foreseen,
                **{model: functools.partial(adapts, model=model) for model in PUBLISHED_LORA}}


def main():
    name, sluice, scratch = sys.argv[1:]
    runs = Runs(sluice, pathlib.Path(scratch))
    if name in NEED_TEXT:
        runs.make_corpus()
    return (NEED_TEXT | NEED_NEITHER)[name](runs)


if __name__ == "__main__":
    sys.exit(main())
