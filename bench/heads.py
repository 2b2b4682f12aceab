"""Pairs a second that a head trains on: Sluice packs texts, TRL's RewardTrainer and sentence-transformers' trainer pad them.

One small model of random weights, and the same pairs, batch size, optimiser, clipping and threads on both sides; sdpa attention,
FP32, no checkpointing of activations. Trainers load, collate and step as they are; rewards get tokens, embeddings get words that a
tokenizer cuts at blanks. A run goes once through the pairs, in an order that the system itself draws. Tokens of the timed steps are
counted alike: those of both texts of each pair, without padding. Rounds alternate which system begins, so that a drifting machine
hits both alike, and a ratio is one round's. Processor seconds of both systems are printed, too: they show what a busy machine hides.

    make bench-heads
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import datasets
import sentence_transformers
import tokenizers
import torch
import transformers
import trl
from sentence_transformers.sentence_transformer import losses, modules

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / folder) for folder in ("parity", "integration")]

import program  # noqa: E402
import reference  # noqa: E402
from harness import hardware, recorded_revision, revision  # noqa: E402

SHAPE = dict(layers=2, hidden=256, heads=8, kv_heads=4, ffn_hidden=672, vocab=2048)
OPTIMIZER = dict(lr=1e-3, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.0, clip=1.0, warmup_steps=0, decay="constant",
                 min_lr=1e-3)
LENGTHS = {"wikipedia": HERE / "data" / "wikipedia_lengths.txt", "code": HERE / "data" / "code_lengths.txt"}
KINDS = {"reward": "TRL's RewardTrainer", "embed": "sentence-transformers' trainer"}
TEMPERATURE = 0.05


class Clock(transformers.TrainerCallback):
    """Seconds and tokens of the steps behind the first `warmup`, from one's end to the next one's. It is the model's hook, too."""

    def __init__(self, warmup):
        self.warmup, self.ends, self.tokens = warmup, [], [0]

    def on_step_end(self, *_, **__):
        self.ends.append(time.perf_counter())
        self.tokens.append(0)

    def count(self, _model, positional, named):
        self.tokens[-1] += int((named or positional[0])["attention_mask"].sum())

    def result(self):
        return sum(self.tokens[self.warmup:]), self.ends[-1] - self.ends[self.warmup - 1]


def word_tokenizer():
    words = {str(i): i for i in range(SHAPE["vocab"])}
    fast = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="0"))
    fast.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=fast, pad_token="0", eos_token="1", unk_token="0")


def pairs_of(args, lengths_file):
    """Two texts of each pair; a token of each is none that pads."""
    lengths = [min(int(line), args.context) for line in lengths_file.read_text().split()]
    count = (args.warmup + args.steps) * args.pairs
    chosen = random.Random(1).choices(lengths, k=2 * count)
    texts = [[max(token, 2) for token in text]
             for text in program.zipf_documents([max(length, 2) for length in chosen], SHAPE["vocab"], seed=1)]
    return texts[:count], texts[count:]


def training(args, cls, **more):
    return cls(output_dir=str(args.scratch / "trainer"), per_device_train_batch_size=args.pairs, max_steps=args.warmup + args.steps,
               learning_rate=OPTIMIZER["lr"], adam_beta1=OPTIMIZER["betas"][0], adam_beta2=OPTIMIZER["betas"][1],
               weight_decay=OPTIMIZER["weight_decay"], max_grad_norm=OPTIMIZER["clip"], lr_scheduler_type="constant", warmup_steps=0,
               report_to="none", save_strategy="no", logging_strategy="no", use_cpu=True, bf16=False, fp16=False,
               gradient_checkpointing=False, disable_tqdm=True, seed=1, **more)


def run_reward_trainer(args, folder, first, second):
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, dtype=torch.float32)
    model.config.pad_token_id = 0
    clock = Clock(args.warmup)
    trainer = trl.RewardTrainer(model=model, args=training(args, trl.RewardConfig, max_length=None), processing_class=word_tokenizer(),
                                train_dataset=datasets.Dataset.from_dict({"chosen_ids": first, "rejected_ids": second}),
                                callbacks=[clock])
    model.register_forward_pre_hook(clock.count, with_kwargs=True)
    trainer.train()
    return clock.result()


def run_embedding_trainer(args, folder, first, second):
    word_tokenizer().save_pretrained(folder)
    transformer = modules.Transformer(str(folder), max_seq_length=args.context)
    pooling = modules.Pooling(transformer.get_embedding_dimension() if hasattr(transformer, "get_embedding_dimension")
                              else transformer.get_word_embedding_dimension(), pooling_mode="lasttoken")
    model = sentence_transformers.SentenceTransformer(modules=[transformer, pooling], device="cpu")
    clock = Clock(args.warmup)

    def words(texts):
        return [" ".join(map(str, text)) for text in texts]
    trainer = sentence_transformers.SentenceTransformerTrainer(
        model=model, args=training(args, sentence_transformers.SentenceTransformerTrainingArguments),
        train_dataset=datasets.Dataset.from_dict({"anchor": words(first), "positive": words(second)}),
        loss=losses.MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE), callbacks=[clock])
    model.register_forward_pre_hook(clock.count, with_kwargs=True)
    trainer.train()
    return clock.result()


TRAINERS = {"reward": run_reward_trainer, "embed": run_embedding_trainer}


def run_sluice(args, kind, folder, first, second):
    program.write_corpus(args.scratch / "first", first)
    program.write_corpus(args.scratch / "second", second)
    head = {"kind": kind, "pairs_per_step": args.pairs}
    head |= {"rejected": [str(args.scratch / "second")]} if kind == "reward" else {
        "positives": [str(args.scratch / "second")], "temperature": TEMPERATURE}
    config = program.write_config(args.scratch / "run.toml", {
        "model": {"hf": str(folder)},
        "data": {"train": [[str(args.scratch / "first"), 1.0]], "context_length": args.context},
        "head": head, "train": {"steps": args.warmup + args.steps, "threads": args.threads, "device": "cpu", "dtype": "float32"},
        "optimizer": OPTIMIZER, "parallel": {"strategies": ["<1,1,1>"], "calibration": "analytic"},
        "memory": {"margin_gib": 0.25}, "log": {"tensorboard": False}})
    timed = program.train(args.sluice, config, args.scratch / "run")[args.warmup:]
    return sum(line["tokens"] for line in timed), sum(line["time_ms"] for line in timed) / 1e3


class Progress:
    """Says on standard error what each run took, and when the last one will be done."""

    def __init__(self, runs):
        self.begin, self.runs, self.done = time.perf_counter(), runs, 0

    def add(self, what, rate, processor_s):
        self.done += 1
        elapsed = time.perf_counter() - self.begin
        left = elapsed / self.done * (self.runs - self.done)
        print(f"{self.done} of {self.runs}, {elapsed:.0f} s, {left:.0f} s left: {what} {rate:.0f} tokens/s, {processor_s:.1f} processor s",
              file=sys.stderr, flush=True)


def processor_seconds():
    """Of this process and of those that it waited for."""
    return sum(os.times()[:4])


def compare(args, kind, lengths, progress):
    first, second = pairs_of(args, LENGTHS[lengths])
    tokens = sum(map(len, first + second)) / len(first)
    folder = args.scratch / "model"
    config = reference.model_config(**SHAPE, positions=args.context)
    reference.random_model(config, seed=1).save_pretrained(folder)
    rates = {"sluice": [], "trainer": []}
    for index in range(args.rounds):
        for system in list(rates)[::-1 if index % 2 else 1]:
            before = processor_seconds()
            trained, seconds = (run_sluice(args, kind, folder, first, second) if system == "sluice"
                                else TRAINERS[kind](args, folder, first, second))
            rates[system].append(trained / seconds)
            progress.add(f"{kind}, {lengths}, round {index + 1}: {system}", rates[system][-1], processor_seconds() - before)
    ratios = [ours / theirs for ours, theirs in zip(*rates.values(), strict=True)]
    padded = statistics.mean(2 * args.pairs * max(map(len, batch)) / sum(map(len, batch)) for batch in batches(args, first, second))
    return {"kind": kind, "lengths": lengths, "tokens_per_pair": tokens, "padding": padded, "ratios": ratios,
            "tokens_per_s": rates}


def batches(args, first, second):
    """Both texts of the pairs that stand side by side, as a trainer that draws them may have them."""
    order = list(range(len(first)))
    random.Random(2).shuffle(order)
    for begin in range(0, len(order), args.pairs):
        yield [text for i in order[begin:begin + args.pairs] for text in (first[i], second[i])]


def command_of(arguments):
    """make's, with the options that it was given."""
    own = [part for name, part in zip([""] + arguments, arguments) if "--sluice" not in (name, part) and "--results" not in (name, part)]
    return "make bench-heads" + (f" OPTIONS='{' '.join(own)}'" if own else "")


def spread(values, form):
    """The median, and between which values all lie."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def page(args, rows, origin):
    versions = (f"torch {torch.__version__}, transformers {transformers.__version__}, TRL {trl.__version__}, "
                f"sentence-transformers {sentence_transformers.__version__}")
    lines = ["# Heads beside padding trainers", "",
             f"Command: `{command_of(sys.argv[1:])}`, at revision {origin}, {hardware()}, load {args.load:.1f} before; {versions}.", "",
             f"{args.pairs} pairs a step, texts of at most {args.context} tokens, {args.steps} steps behind {args.warmup} that are not "
             f"timed, {args.rounds} rounds, medians with lowest and highest; a ratio is one round's. Shape: " +
             ", ".join(f"{name} {value}" for name, value in SHAPE.items()) + ", FP32, one process. Padding: positions of a padded "
             "batch for each token in it.", "",
             "| head | lengths | beside | tokens a pair | padding | Sluice, tokens/s | trainer, tokens/s | ratio |",
             "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for row in rows:
        ours, theirs = row["tokens_per_s"].values()
        lines.append(f"| {row['kind']} | {row['lengths']} | {KINDS[row['kind']]} | {row['tokens_per_pair']:.0f} | {row['padding']:.2f} | "
                     f"{spread(ours, '.0f')} | {spread(theirs, '.0f')} | {spread(row['ratios'], '.2f')} |")
    return "\n".join([*lines, "",
                      "Sluice goes through the texts once more than the trainers: a forward pass before the step finds all numbers, so "
                      "that the loss does not depend on how texts are packed, nor a batch's size on memory (docs/heads.md).", ""])


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--context", type=int, default=1024, help="the longest text, tokens")
    parser.add_argument("--pairs", type=int, default=8, help="a step")
    parser.add_argument("--steps", type=int, default=3, help="that are timed, a round")
    parser.add_argument("--warmup", type=int, default=1, help="steps before those, 1 or more")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=KINDS, help="one head")
    parser.add_argument("--lengths", choices=LENGTHS, help="texts of one kind")
    parser.add_argument("--results", help="the page to write, of a tree without changes")
    return parser.parse_args()


def main():
    args = options()
    args.load = os.getloadavg()[0]
    origin = recorded_revision() if args.results else revision()
    torch.set_num_threads(args.threads)
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as scratch:
        args.scratch = Path(scratch)
        cases = [(kind, lengths) for kind in KINDS for lengths in LENGTHS
                 if args.only in (None, kind) and args.lengths in (None, lengths)]
        progress = Progress(len(cases) * args.rounds * 2)
        rows = [compare(args, kind, lengths, progress) for kind, lengths in cases]
    text = page(args, rows, origin)
    print(text if not args.results else json.dumps(rows))
    if args.results:
        Path(args.results).write_text(text)


if __name__ == "__main__":
    main()
