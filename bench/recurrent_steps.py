#!/usr/bin/env python3
"""Training steps of four layers of gated linear attention beside those of four of attention with as many multiply-adds, side by
side on this machine, as a table in Markdown; bench/record.py recurrence writes it.

    bench/recurrent_steps.py build/sluice
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "parity"))

import program  # noqa: E402

HIDDEN, LAYERS, HEADS, VOCAB, GLA_FFN = 512, 4, 8, 4096, 1536
CHUNK = 64  # rows within which the recurrence multiplies each with each
LENGTHS = [512, 2048, 4096]
TOKENS = 4096
STEPS, LEFT_OUT, ROUNDS = 5, 2, 2


def recurrence(keys, values):
    """Multiply-adds of a token: scores and outputs within a chunk, and what a state gives and gets."""
    return HEADS * (CHUNK * keys + CHUNK * values + 2 * keys * values)


def gla():
    keys, values = HIDDEN // 2, HIDDEN
    own = HIDDEN * (2 * keys + 2 * values) + values * HIDDEN + 16 * (HIDDEN + keys) + 3 * HIDDEN * GLA_FFN
    config = {"architectures": ["GLAForCausalLM"], "model_type": "gla", "hidden_act": "swish", "num_heads": HEADS,
              "expand_k": 0.5, "expand_v": 1.0, "intermediate_size": GLA_FFN}
    return config, own + recurrence(keys // HEADS, values // HEADS)


def dense(multiply_adds, length):
    """Attention, each token's with half the sequence; the rest is the MLP's."""
    left = multiply_adds - 4 * HIDDEN * HIDDEN - length * HIDDEN
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": HEADS,
            "intermediate_size": round(left / (3 * HIDDEN))}


def step_ms(sluice, scratch, config, length):
    model = scratch / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps({**config, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
                                                   "vocab_size": VOCAB}))
    program.write_corpus(scratch / "corpus", program.zipf_documents([length] * (2 * TOKENS // length), VOCAB, seed=3))
    run = program.write_config(scratch / "run.toml", {
        "model": {"hf": str(model)}, "optimizer": {"lr": 1e-4},
        "data": {"train": [[str(scratch / "corpus"), 1.0]], "context_length": length, "tokens_per_step": TOKENS},
        "train": {"steps": STEPS, "device": "cpu"}, "parallel": {"strategies": ["<1,1,1>"], "calibration": "analytic"}})
    lines = program.train(sluice, run, scratch / "run", "--nproc", 1)
    return statistics.median(line["time_ms"] for line in lines[LEFT_OUT:])


def main():
    sluice = sys.argv[1]
    print(f"Steps of {TOKENS} tokens, hidden {HIDDEN}, {HEADS} heads, one rank; medians of milliseconds:\n")
    print("| tokens of a document | gated linear attention | attention and MLP | ratio |\n|---:|---:|---:|---:|")
    config, multiply_adds = gla()
    for length in LENGTHS:
        both = [[], []]
        with tempfile.TemporaryDirectory() as scratch:
            for _ in range(ROUNDS):
                for times, model in zip(both, (config, dense(multiply_adds, length)), strict=True):
                    times.append(step_ms(sluice, Path(scratch), model, length))
        own, other = map(min, both)
        print(f"| {length} | {own:.0f} | {other:.0f} | {own / other:.2f} |", flush=True)


if __name__ == "__main__":
    main()
