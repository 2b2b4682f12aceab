#!/usr/bin/env python3
"""What computing a prompt once for its answers is worth on this machine: steps of GRPO on long prompts, with rl.share_prompts and
without, in turn. Prints a table in Markdown; bench/record.py branches writes it.

    python3 bench/shared_prompts.py [--sluice build/sluice] [--rounds 3]
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples" / "rl"))

import sorting  # noqa: E402

PROMPTS, SAMPLES, ANSWER, STEPS = 4, 16, 32, 4
CONFIG = """
[model]
layers = 2
hidden = 128
heads = 4
kv_heads = 2
ffn_hidden = 384
vocab = 14
[train]
steps = {steps}
[rl]
algorithm = "grpo"
prompts_per_step = {prompts}
num_generations = {samples}
max_completion_length = {answer}
reward = ["regex:[02468]$"]
val_max_samples = 0
[parallel]
calibration = "analytic"
[log]
tensorboard = false
"""


def run(*command):
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")


def corpus(sluice, folder, tokens):
    chance = random.Random(tokens)
    (folder / "tokenizer.json").write_text(json.dumps(sorting.tokenizer()))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<end>", "chat_template": sorting.TEMPLATE}))
    lists = [[chance.randrange(10) for _ in range(tokens - 1)] for _ in range(PROMPTS * STEPS)]
    sorting.write_lines(folder / "lists.jsonl", [sorting.conversation(digits, "0") for digits in lists])
    run(sluice, "corpus", "build", folder / "lists.jsonl", "--chat", "--tokenizer", folder / "tokenizer.json", "--out",
        folder / "lists")


def step_ms(sluice, folder, tokens, shares):
    log = folder / f"shares_{shares}"
    settings = {"data.train": f'[["{folder}/lists/corpus", 1.0]]', "data.context_length": tokens + ANSWER + 1,
                "rl.share_prompts": str(shares).lower(), "log.dir": f'"{log}"'}
    run("rm", "-rf", log)
    run(sluice, "train", "--config", folder / "run.toml", "--nproc", 2,
        *(part for key, value in settings.items() for part in ("--set", f"{key}={value}")))
    lines = [json.loads(line) for line in (log / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(line["time_ms"] for line in lines[1:] if "time_ms" in line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=Path, default=ROOT / "build" / "sluice")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"{PROMPTS} prompts, {SAMPLES} answers of {ANSWER} tokens at most to each, a LLaMA of 2 layers of 128, FP32, 2 ranks; medians of "
          f"{args.rounds} rounds.\n\n| prompt, tokens | one by one, ms | shared, ms | faster (least to most) |\n|---:|---:|---:|---:|")
    for tokens in (64, 256, 1024):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "run.toml").write_text(CONFIG.format(steps=STEPS, prompts=PROMPTS, samples=SAMPLES, answer=ANSWER))
            corpus(args.sluice, folder, tokens)
            rounds = [[step_ms(args.sluice, folder, tokens, shares) for shares in (False, True)] for _ in range(args.rounds)]
        apart, shared = (statistics.median(column) for column in zip(*rounds))
        ratios = sorted(a / s for a, s in rounds)
        print(f"| {tokens} | {apart:.0f} | {shared:.0f} | {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |")


if __name__ == "__main__":
    main()
