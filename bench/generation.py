"""Tokens per second that are said behind many prompts: `sluice generate` beside transformers on the same processors.

Prompts differ in length by a factor of twenty, or are those of a question that examples/ext_agents.py asks of a long text: seekers'
prompts of a part each, round after round with the facts that have been noted, and a reducer's that grow. All texts run to the
same number of tokens, greedily, in FP32. transformers answers them (a) as one padded batch with `generate`, the longest prompts deciding for all, and (b) with its continuous
batching, `generate_batch`, which on processors is the slower of the two. Systems take turns round by round; a ratio is one round's,
over whichever of (a) and (b) was faster in it. Every system's ids are compared: they
are the same but where two likeliest tokens are as likely to the last digits. What Sluice's passes took stands beside what they should have
taken by what it measures of the model's layers before.

    make bench-generate
"""

import argparse
import concurrent.futures
import json
import os
import random
import re
import sys
import tempfile
import time
import zlib
from pathlib import Path

import torch
import transformers

HERE = Path(__file__).resolve().parent
sys.path[:0] = [*(str(HERE.parent / "tests" / folder) for folder in ("parity", "integration")), str(HERE.parent / "examples")]

import ext_agents  # noqa: E402
import reference  # noqa: E402
from harness import recorded_revision  # noqa: E402
from transformers_throughput import hardware, spread  # noqa: E402

SHAPE = dict(layers=4, hidden=256, heads=8, kv_heads=4, ffn_hidden=672, vocab=2048)
MODELS = {"llama": {}, "mixtral": {"family": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}}
GOAL = 3.0  # times the faster of transformers' two
LONGEST = 1024
PREDICTED = []  # what passes should take, over what they took


def write_tokenizer(folder):
    """Words that stand for ids, and an end token that no text reaches: all run to their last token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    words = {f"w{index}": index for index in range(SHAPE["vocab"])} | {"</s>": SHAPE["vocab"]}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))


def lengths_apart(args):
    source = random.Random(args.seed)
    return [[source.randrange(SHAPE["vocab"]) for _ in range(int(args.shortest * 20 ** source.random()))]
            for _ in range(args.prompts)]


class Told:
    """In an endpoint's place: a seeker notes two facts of its part each time, a reducer wants twelve. Keeps the prompts."""

    def __init__(self, source):
        self.source, self.prompts = source, []

    def ask(self, who, system, user):
        self.prompts.append(f"{system} {user}")
        if who.startswith("reducer"):
            return "UNKNOWN" if user.count("\n- ") < 11 else "so"
        return "\n".join(f"{self.source.randrange(1, 10)}: {words(self.source, 12)}" for _ in range(2))


def words(source, count):
    return " ".join(f"w{source.randrange(SHAPE['vocab'])}" for _ in range(count))


def agents(args):
    """Prompts as that program sends them, all there at once; a word is a token."""
    source = random.Random(args.seed)
    told = Told(source)
    text = words(source, 8 * 400)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        parts = ext_agents.parts_of([text], len(text) // 8 + 8)
        facts, _ = ext_agents.seek(told, words(source, 10), parts, 3, 16, pool)
    ext_agents.reduce(told, words(source, 10), facts)
    return [[zlib.crc32(word.encode()) % SHAPE["vocab"] for word in prompt.split()] for prompt in told.prompts]


LOADS = {"lengths apart": lengths_apart, "agents": agents}


DIVIDED = "<1,1,2,2,2>"  # two lanes, each with half of every layer's experts


def say_sluice(args, folder, prompts, *options, threads=None):
    from subprocess import run
    scratch = Path(tempfile.mkdtemp(dir=folder))
    (scratch / "prompts.jsonl").write_text("".join(json.dumps({"ids": prompt}) + "\n" for prompt in prompts))
    done = run([os.path.abspath(args.sluice), "generate", "--model", str(folder), "--prompts", str(scratch / "prompts.jsonl"),
                "--out", str(scratch / "said.jsonl"), "--tokens", str(args.tokens), "--threads", str(threads or args.threads),
                "--device", "cpu", *(options or ["--predict"])], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    said = [json.loads(line)["ids"] for line in (scratch / "said.jsonl").read_text().splitlines()]
    # From the first pass to the last, as the loops below are timed.
    taken = seconds(re.search(r"generating: done in (.*)", done.stderr).group(1))
    if not options:
        PREDICTED.append(seconds(re.search(r"which should take (.*) and took", done.stderr).group(1)) / taken)
    return said, taken


def divided(args, folder, prompts):
    """Experts on two ranks, which is for mixtures that one doesn't hold: tokens a second beside one rank's, and whose ids are the same."""
    one, two = [], []
    for _ in range(args.rounds):
        alone, taken = say_sluice(args, folder, prompts)
        one.append(sum(map(len, alone)) / taken)
        said, taken = say_sluice(args, folder, prompts, "--nproc", "2", "--strategy", DIVIDED, threads=max(1, args.threads // 2))
        two.append(sum(map(len, said)) / taken)
    return {"strategy": DIVIDED, "tokens_per_s": spread(two, 0), "ratio_over_one_rank": spread([b / a for a, b in zip(one, two)], 2),
            "texts_with_the_same_ids": round(same_share(alone, said), 3)}


def seconds(duration):
    units = {"min": 60, "s": 1, "ms": 1e-3}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (min|ms|s)\b", duration))


def say_padded(args, folder, prompts):
    model = reference.load_model(folder).eval()
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    begin = time.perf_counter()
    with torch.no_grad():
        out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=args.tokens, do_sample=False, pad_token_id=0,
                             eos_token_id=None)
    return out[:, longest:].tolist(), time.perf_counter() - begin


def say_continuous(args, folder, prompts):
    model = reference.load_model(folder).eval()
    settings = transformers.GenerationConfig(max_new_tokens=args.tokens, do_sample=False, pad_token_id=0, eos_token_id=-1)
    begin = time.perf_counter()
    with torch.no_grad():
        out = model.generate_batch(inputs=prompts, generation_config=settings, progress_bar=False)
    seconds = time.perf_counter() - begin
    answers = sorted(out.values(), key=lambda answer: int(re.search(r"\d+$", answer.request_id).group()))
    return [answer.generated_tokens for answer in answers], seconds


SYSTEMS = {"sluice": say_sluice, "padded": say_padded, "continuous": say_continuous}


def same_share(ours, theirs):
    """Of texts; where one differs, two tokens were as likely, and all behind them are others."""
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours)


def compare(args, name, load, folder):
    config = reference.model_config(**SHAPE, positions=LONGEST, **MODELS[name], eos_token_id=None)
    reference.random_model(config, seed=1, scale=4).save_pretrained(folder)
    write_tokenizer(folder)
    prompts = LOADS[load](args)
    PREDICTED.clear()
    rates, same = {system: [] for system in args.systems}, {}
    for round_index in range(args.rounds):
        said = {}
        for system in args.systems:
            said[system], seconds = SYSTEMS[system](args, folder, prompts)
            rates[system].append(sum(map(len, said[system])) / seconds)
            print(f"{name}, {load}, round {round_index + 1} of {args.rounds}: {system} {rates[system][-1]:.0f} tokens/s", file=sys.stderr)
        same = {system: round(same_share(said["sluice"], said[system]), 3) for system in args.systems[1:]}
    others = args.systems[1:]
    ratios = [ours / max(theirs) for ours, *theirs in zip(rates["sluice"], *(rates[system] for system in others))] if others else []
    lengths = sorted(map(len, prompts))
    return {"model": name, "load": load, "prompts": len(lengths), "prompt_tokens": [lengths[0], lengths[-1]], "tokens_per_s": {system: spread(rates[system], 0) for system in args.systems},
            **({"ratio_over_better": spread(ratios, 2)} if ratios else {}), "goal": GOAL, "predicted_over_taken": spread(PREDICTED, 3), "texts_with_the_same_ids": same,
            **({"experts_divided": divided(args, folder, prompts)} if MODELS[name] else {})}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--shortest", type=int, default=30, help="prompt, tokens; the longest has twenty times as many")
    parser.add_argument("--tokens", type=int, default=100, help="said behind each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=MODELS, help="one model")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="sluice first")
    parser.add_argument("--out", help="write the result as JSON")
    return parser.parse_args()


def main():
    args = options()
    torch.set_num_threads(args.threads)
    report = {"command": " ".join(["python", *sys.argv]), "revision": recorded_revision() if args.out else "", "hardware": hardware(), "threads": args.threads,
              "torch": torch.__version__, "transformers": transformers.__version__, "shape": SHAPE, "tokens": args.tokens,
              "rounds": args.rounds}
    with tempfile.TemporaryDirectory() as scratch:
        report["throughput"] = []
        for name, load in [*((name, "lengths apart") for name in MODELS), ("llama", "agents")]:
            if args.only in (None, name):
                folder = Path(scratch) / f"{name} {load}"
                folder.mkdir()
                report["throughput"].append(compare(args, name, load, folder))
    print(json.dumps(report, indent=2))
    if args.out:
        Path(args.out).write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
