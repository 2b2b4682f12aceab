"""Tokens per second of one rank of Sluice beside plain PyTorch + transformers loops on the same batches.

The loops are what people write first: (a) pad the batch to its longest sequence, (b) run one sequence at a
time and accumulate gradients. Same model, weights' shape, batches, optimiser, clipping and threads; sdpa
attention; FP32. Runs are interleaved, so a drifting machine hits all alike. Before anything is timed, the
three losses of the first step are compared.

    make parity-bench        or:  python bench/transformers_throughput.py --sluice build/sluice
"""

import argparse
import json
import platform
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).resolve().parent
SHAPE = dict(layers=4, hidden=256, heads=8, kv_heads=4, ffn_hidden=672, vocab=2048)


def write_corpus(prefix, lengths, seed):
    """A Megatron corpus of `lengths` with a learnable pattern: token = (document + 7 * position) mod vocab."""
    vocab = SHAPE["vocab"]
    offset = 0
    pointers = []
    with open(f"{prefix}.bin", "wb") as out:
        for document, length in enumerate(lengths):
            pointers.append(offset)
            tokens = [(document + seed + 7 * position) % vocab for position in range(length)]
            out.write(struct.pack(f"<{length}H", *tokens))
            offset += 2 * length
    count = len(lengths)
    with open(f"{prefix}.idx", "wb") as out:
        out.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, count, count + 1))
        out.write(struct.pack(f"<{count}i", *lengths))
        out.write(struct.pack(f"<{count}q", *pointers))
        out.write(struct.pack(f"<{count + 1}q", *range(count + 1)))


def write_config(path, corpus, model, args, run_directory):
    path.write_text(f"""
[model]
hf = "{model}"
[data]
train = [["{corpus}", 1.0]]
context_length = {args.context}
tokens_per_step = {args.tokens}
[train]
steps = {args.steps + args.warmup}
threads = {args.threads}
device = "cpu"
[optimizer]
lr = 1e-3
warmup_steps = 0
decay = "constant"
[parallel]
strategies = ["<1,1,1>"]
calibration = "analytic"
[memory]
margin_gib = 0.25
[log]
dir = "{run_directory}"
tensorboard = false
""")


def batches(sluice, config, steps):
    """The sequences of each step, as lists of token lists."""
    result = []
    for step in range(steps):
        plan = json.loads(subprocess.run([sluice, "plan", "--config", config, "--step", str(step), "--json"],
                                         check=True, capture_output=True, text=True).stdout)
        result.append([(s["document"], s.get("begin", 0), s["length"]) for s in plan["sequences"]])
    return result


def tokens_of(sequence, seed):
    document, begin, length = sequence
    return [(document + seed + 7 * (begin + i)) % SHAPE["vocab"] for i in range(length)]


class Loop:
    """A plain training loop; one step at a time so that systems can be interleaved."""

    def __init__(self, model_directory, padded):
        self.model = LlamaForCausalLM.from_pretrained(model_directory, attn_implementation="sdpa")
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
                                           weight_decay=0.1)
        self.padded = padded

    def backward_padded(self, sequences, targets):
        longest = max(len(s) for s in sequences)
        ids = torch.zeros(len(sequences), longest, dtype=torch.long)
        labels = torch.full((len(sequences), longest), -100)
        mask = torch.zeros(len(sequences), longest, dtype=torch.long)
        for row, sequence in enumerate(sequences):
            ids[row, :len(sequence)] = torch.tensor(sequence)
            labels[row, :len(sequence)] = ids[row, :len(sequence)]
            mask[row, :len(sequence)] = 1
        logits = self.model(input_ids=ids, attention_mask=mask).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(),
                                                 ignore_index=-100, reduction="sum") / targets
        loss.backward()
        return loss.item()

    def backward_one_by_one(self, sequences, targets):
        total = 0.0
        for sequence in sequences:
            ids = torch.tensor([sequence])
            logits = self.model(input_ids=ids).logits
            loss = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="sum") / targets
            loss.backward()
            total += loss.item()
        return total

    def step(self, sequences):
        self.optimizer.zero_grad()
        targets = sum(len(s) - 1 for s in sequences)
        backward = self.backward_padded if self.padded else self.backward_one_by_one
        loss = backward(sequences, targets)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss


def run_sluice(sluice, config, run_directory):
    subprocess.run([sluice, "train", "--config", config], check=True, capture_output=True)
    lines = [json.loads(line) for line in (run_directory / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line]


def measure(name, args, scratch):
    lengths = [int(line) for line in Path(args.lengths[name]).read_text().split()][: args.documents]
    lengths = [length for length in lengths if length >= 2]
    directory = scratch / name
    directory.mkdir()
    write_corpus(directory / "corpus", lengths, seed=0)
    model_directory = directory / "model"
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=SHAPE["vocab"], hidden_size=SHAPE["hidden"], intermediate_size=SHAPE["ffn_hidden"],
        num_hidden_layers=SHAPE["layers"], num_attention_heads=SHAPE["heads"],
        num_key_value_heads=SHAPE["kv_heads"], max_position_embeddings=args.context,
        rms_norm_eps=1e-5, tie_word_embeddings=False)).save_pretrained(model_directory)
    config = directory / "run.toml"
    run_directory = directory / "run"
    write_config(config, directory / "corpus", model_directory, args, run_directory)
    steps = [[tokens_of(s, 0) for s in batch] for batch in batches(args.sluice, config, args.steps + args.warmup)]

    # Each system runs its steps in one go; the systems take turns round by round.
    times = {"sluice": [], "padded": [], "one_by_one": []}
    tokens = [sum(len(s) for s in batch) for batch in steps]
    for round_index in range(args.rounds):
        lines = run_sluice(args.sluice, config, run_directory)
        times["sluice"] += [line["time_ms"] / 1e3 for line in lines[args.warmup:]]
        for system, padded in (("padded", True), ("one_by_one", False)):
            loop = Loop(model_directory, padded)
            for index, batch in enumerate(steps):
                begin = time.perf_counter()
                loss = loop.step(batch)
                if index >= args.warmup:
                    times[system].append(time.perf_counter() - begin)
                if round_index == 0 and abs(loss / lines[index]["loss"] - 1) > 1e-4:
                    raise SystemExit(f"{system} step {index}: loss {loss}, Sluice's {lines[index]['loss']}")
    counted = tokens[args.warmup:] * args.rounds
    rates = {system: statistics.median(t / s for t, s in zip(counted, seconds)) for system, seconds in times.items()}
    best = max(rates["padded"], rates["one_by_one"])
    return {"lengths": name, "tokens_per_s": {k: round(v) for k, v in rates.items()},
            "ratio_over_better": round(rates["sluice"] / best, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", help="write the result as JSON")
    args = parser.parse_args()
    args.lengths = {"wikipedia": HERE / "data" / "wikipedia_lengths.txt", "code": HERE / "data" / "code_lengths.txt"}
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as scratch:
        results = [measure(name, args, Path(scratch)) for name in args.lengths]
    report = {"command": "python bench/transformers_throughput.py", "hardware": platform.processor() or platform.machine(),
              "threads": args.threads, "shape": SHAPE, "context": args.context, "tokens_per_step": args.tokens,
              "torch": torch.__version__, "results": results}
    print(json.dumps(report, indent=2))
    if args.out:
        Path(args.out).write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
