"""Tokens per second of one rank of Sluice beside plain PyTorch + transformers loops on the same batches.

The loops are what people write first: (a) pad the batch to its longest sequence, (b) run one sequence at a
time and accumulate gradients. Same weights, batches, optimiser, clipping and threads; sdpa attention; FP32.
Systems take turns round by round, so that a drifting machine hits all alike, and a ratio is one round's. Every
loss of the first round is compared. Beside it: the engine's overhead (neither inside operations nor waiting
for peers) at the quick start's size.

    make bench-transformers
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / folder) for folder in ("parity", "integration")]

import program  # noqa: E402
import reference  # noqa: E402
from harness import recorded_revision  # noqa: E402

SHAPE = dict(layers=4, hidden=256, heads=8, kv_heads=4, ffn_hidden=672, vocab=2048)
OPTIMIZER = dict(lr=1e-3, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1, clip=1.0, warmup_steps=0, decay="cosine",
                 min_lr=1e-4)
# A mixture of experts in the same sizes, a token passing as much as in SHAPE.
EXPERTS = dict(SHAPE, family="mixtral", ffn_hidden=336, num_local_experts=8, num_experts_per_tok=2)
QUICKSTART_SHAPE = dict(layers=4, hidden=128, heads=4, kv_heads=2, ffn_hidden=336, vocab=2048, tie_embeddings=True)
LENGTHS = {"wikipedia": HERE / "data" / "wikipedia_lengths.txt", "code": HERE / "data" / "code_lengths.txt"}
GOALS = {"wikipedia": 1.3, "code": 1.0}
EXPERTS_GOAL = 1.3
OVERHEAD_GOAL = 0.02
SYSTEMS = ("sluice", "padded", "one_by_one")


class PaddedLoop:
    """All sequences of a batch side by side, as long as the longest."""

    def backward(self, model, sequences):
        longest = max(map(len, sequences))
        ids = torch.zeros(len(sequences), longest, dtype=torch.long)
        mask = torch.zeros(len(sequences), longest, dtype=torch.long)
        for row, sequence in enumerate(sequences):
            ids[row, :len(sequence)] = torch.tensor(sequence)
            mask[row, :len(sequence)] = 1
        labels = torch.where(mask == 1, ids, -100)
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        targets = sum(len(sequence) - 1 for sequence in sequences)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(),
                                                 ignore_index=-100, reduction="sum") / targets
        loss.backward()
        return loss.item()


class OneByOneLoop:
    """Gradients accumulate over the sequences."""

    def backward(self, model, sequences):
        return reference.backward(model, sequences)


LOOPS = {"padded": PaddedLoop(), "one_by_one": OneByOneLoop()}


def run_loop(loop, model_directory, batches):
    """(losses, seconds) of one step a batch."""
    model = reference.load_model(model_directory).train()
    optimizer = reference.adamw(model, OPTIMIZER)
    losses, seconds = [], []
    for step, batch in enumerate(batches):
        begin = time.perf_counter()
        optimizer.zero_grad()
        losses.append(loop.backward(model, batch))
        torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip"])
        for group in optimizer.param_groups:
            group["lr"] = reference.learning_rate(OPTIMIZER, step, len(batches))
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    return losses, seconds


def run_sluice(args, config, scratch):
    lines = program.train(args.sluice, config, scratch / "run", "--nproc", 1)
    return [line["loss"] for line in lines], [line["time_ms"] / 1e3 for line in lines]


def write_corpus(args, lengths_file, prefix):
    lengths = [int(line) for line in lengths_file.read_text().split()][:args.documents]
    # Longer documents are truncated to the context anyway.
    documents = program.zipf_documents([min(length, args.context + 1) for length in lengths], SHAPE["vocab"], seed=1)
    program.write_corpus(prefix, documents)
    return documents


def sections(args, prefix, model, strategies, threads):
    return {"model": model,
            "data": {"train": [[str(prefix), 1.0]], "context_length": args.context, "tokens_per_step": args.tokens},
            "train": {"steps": args.warmup + args.steps, "threads": threads, "device": "cpu"},
            "optimizer": OPTIMIZER,
            "parallel": {"strategies": strategies, "calibration": "analytic"},
            "memory": {"margin_gib": 0.25},
            "log": {"tensorboard": False}}


def spread(values, digits):
    return {"median": round(statistics.median(values), digits), "lowest": round(min(values), digits),
            "highest": round(max(values), digits)}


def require_equal_losses(system, losses, expected):
    for step, (loss, other) in enumerate(zip(losses, expected, strict=True)):
        if not abs(loss / other - 1) < 1e-5:
            raise SystemExit(f"step {step}: {system}'s loss is {loss}, Sluice's {other}")


def compare(args, name, scratch, shape=SHAPE, goal=None):
    documents = write_corpus(args, LENGTHS[name], scratch / "corpus")
    model_directory = scratch / "model"
    reference.random_model(reference.model_config(**shape, positions=args.context), seed=1).save_pretrained(
        model_directory)
    config = program.write_config(scratch / "run.toml", sections(
        args, scratch / "corpus", {"hf": str(model_directory)}, ["<1,1,1>"], args.threads))
    batches = [program.batch(args.sluice, config, step, documents) for step in range(args.warmup + args.steps)]
    tokens = sum(len(sequence) for batch in batches[args.warmup:] for sequence in batch)

    rates = {system: [] for system in SYSTEMS}
    for round_index in range(args.rounds):
        losses = {}
        for system in SYSTEMS:
            losses[system], seconds = (run_sluice(args, config, scratch) if system == "sluice" else
                                       run_loop(LOOPS[system], model_directory, batches))
            rates[system].append(tokens / sum(seconds[args.warmup:]))
            print(f"{name}, round {round_index + 1} of {args.rounds}: {system} {rates[system][-1]:.0f} tokens/s",
                  file=sys.stderr)
        for system in LOOPS:
            require_equal_losses(system, losses[system], losses["sluice"])
    ratios = [ours / max(others) for ours, *others in zip(*(rates[system] for system in SYSTEMS))]
    return {"lengths": name, "tokens_per_s": {system: spread(rates[system], 0) for system in SYSTEMS},
            "ratio_over_better": spread(ratios, 3), "goal": goal or GOALS[name]}


def measure_overhead(args, ranks, strategies, scratch):
    """Shares of the step, the busiest rank's."""
    write_corpus(args, LENGTHS["code"], scratch / "corpus")
    config = program.write_config(scratch / "run.toml", sections(
        args, scratch / "corpus", QUICKSTART_SHAPE, strategies, 1 if ranks > 1 else args.threads))
    lines = program.train(args.sluice, config, scratch / "run", "--nproc", ranks)[args.warmup:]
    return {"ranks": ranks, "strategies": strategies, "goal": OVERHEAD_GOAL,
            "overhead_share": spread([line["host_overhead_ms"] / line["time_ms"] for line in lines], 4),
            "time_ms": spread([line["time_ms"] for line in lines], 1)}


def hardware():
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return {"processor": names[0] if names else platform.machine(), "cores": os.cpu_count(),
            "load_before": round(os.getloadavg()[0], 1)}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=8192, help="a step")
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=6, help="that are timed, a round")
    parser.add_argument("--warmup", type=int, default=2, help="steps before those")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=[*LENGTHS, "experts", "overhead"], help="one part")
    parser.add_argument("--out", help="write the result as JSON")
    return parser.parse_args()


def main():
    args = options()
    torch.set_num_threads(args.threads)
    report = {"command": " ".join(["python", *sys.argv]), "revision": recorded_revision() if args.out else "", "hardware": hardware(), "threads": args.threads,
              "torch": torch.__version__, "transformers": transformers.__version__, "shape": SHAPE,
              "context_length": args.context, "tokens_per_step": args.tokens, "warmup_steps": args.warmup,
              "steps": args.steps, "rounds": args.rounds}
    with tempfile.TemporaryDirectory() as scratch:
        def folder(name):
            path = Path(scratch) / name
            path.mkdir()
            return path

        report["throughput"] = [compare(args, name, folder(name)) for name in LENGTHS if args.only in (None, name)]
        if args.only == "experts":
            report["shape"] = EXPERTS
            report["throughput"] = [compare(args, name, folder(name), EXPERTS, EXPERTS_GOAL) for name in LENGTHS]
        if args.only in (None, "overhead"):
            report["engine_overhead"] = [
                measure_overhead(args, 1, ["<1,1,1>"], folder("one_rank")),
                measure_overhead(args, 4, ["<2,1,1> + 2x<1,1,1>", "<1,2,1> + <2,1,1>", "4x<1,1,1>"],
                                 folder("four_ranks"))]
    print(json.dumps(report, indent=2))
    if args.out:
        Path(args.out).write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
