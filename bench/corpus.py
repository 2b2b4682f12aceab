"""Tokens a second of `corpus build` beside datasets.map and beside plain `tokenizers`, with the same tokenizer on the same cores.

Three tokenizers are trained here on Python's standard library: byte-level BPE as GPT-2's, BPE with byte fallback as Llama 2's,
and Unigram as T5's. The texts are JSON Lines. datasets.map encodes batches in as many processes as there are cores and
writes Arrow; the plain program gives each process an even share of the lines, encodes batches and writes the ids to a file.
All programs are timed whole, from their start to their end, in turns; what each makes is compared before the times are. Runs
in the environment `datasets` of tools/bootstrap.

    make bench-corpus
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SLUICE = os.path.abspath(os.environ.get("SLUICE", HERE.parent / "build" / "sluice"))
BATCH = 1000

DATASETS = r"""
import os, sys
os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", HF_HOME=sys.argv[3])
import datasets
from tokenizers import Tokenizer
texts, tokenizer, cache, cores, batch = *sys.argv[1:4], *map(int, sys.argv[4:])
tokenizer = Tokenizer.from_file(tokenizer)
datasets.disable_progress_bars()
rows = datasets.load_dataset("json", data_files=texts, split="train")
encode = lambda some: {"ids": [one.ids for one in tokenizer.encode_batch(some["text"], add_special_tokens=False)]}
rows = rows.map(encode, batched=True, batch_size=batch, num_proc=cores, remove_columns=["text"])
if os.environ.get("COUNT"):
    print(sum(map(len, rows["ids"])), sum(map(sum, rows["ids"])))
"""

PLAIN = r"""
import array, json, multiprocessing, os, sys
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer
texts, path, out, cores, batch = *sys.argv[1:4], *map(int, sys.argv[4:])

def work(share):
    tokenizer = Tokenizer.from_file(path)
    size = os.path.getsize(texts)
    begin, end = size * share // cores, size * (share + 1) // cores
    count = total = 0
    with open(texts, "rb") as lines, open(f"{out}/{share}", "wb") as ids:
        if begin:
            lines.seek(begin - 1)
            lines.readline()
        while lines.tell() < end:
            some = []
            while len(some) < batch and lines.tell() < end:
                some.append(json.loads(lines.readline())["text"])
            for one in tokenizer.encode_batch(some, add_special_tokens=False):
                count, total = count + len(one.ids), total + sum(one.ids)
                ids.write(array.array("H", one.ids).tobytes())
    return count, total

with multiprocessing.Pool(cores) as pool:
    print(*map(sum, zip(*pool.map(work, range(cores)))))
"""


def write_texts(path, megabytes):
    """Top-level definitions of Python's standard library, a document each, again and again until they are enough."""
    pieces = [piece for file in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))
              if "site-packages" not in file.parts and "dist-packages" not in file.parts
              for piece in file.read_text(encoding="utf-8", errors="ignore").split("\n\n\n") if piece]
    written = turn = 0
    with open(path, "w", encoding="utf-8") as out:
        while written < megabytes * 1e6:
            for i, piece in enumerate(pieces):
                text = piece if turn == 0 else f"# {turn}.{i}\n{piece}"
                written += out.write(json.dumps({"text": text}) + "\n")
                if written >= megabytes * 1e6:
                    break
            turn += 1
    return pieces


def train_tokenizers(folder, pieces, vocabulary):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    bytes_alphabet = pre_tokenizers.ByteLevel.alphabet()
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    made = {}
    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer, gpt2.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made["byte-level BPE, as GPT-2's"] = gpt2, trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=bytes_alphabet,
                                                                  special_tokens=["<|endoftext|>"], show_progress=False)
    llama = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    llama.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    llama.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(content=" ", left=1)])
    # It has no pre-tokenizer, as Llama 2's: words of training only keep that fast.
    llama.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    made["BPE with byte fallback, as Llama 2's"] = llama, trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<unk>", "<s>", "</s>", *fallback], show_progress=False)
    t5 = Tokenizer(models.Unigram())
    t5.pre_tokenizer, t5.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made["Unigram, as T5's"] = t5, trainers.UnigramTrainer(vocab_size=vocabulary // 4, unk_token="<unk>", show_progress=False,
                                                          special_tokens=["<unk>", "</s>"])
    paths = {}
    for i, (name, (tokenizer, trainer)) in enumerate(made.items()):
        tokenizer.train_from_iterator(pieces[::4], trainer)
        if i == 1:
            tokenizer.pre_tokenizer = None
        paths[name] = folder / f"tokenizer-{i}" / "tokenizer.json"
        paths[name].parent.mkdir()
        data = json.loads(tokenizer.to_str())
        if i == 1:
            data["pre_tokenizer"] = None
        paths[name].write_text(json.dumps(data))
    return paths


def timed(command, **environment):
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    took = time.perf_counter() - begin
    if done.returncode != 0:
        raise SystemExit(f"{command[:3]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return took, done.stdout


class Programs:
    """What is timed: name -> a function from a fresh folder to (seconds, what was printed)."""

    def __init__(self, texts, tokenizer, cores):
        script = [sys.executable, "-c"]
        rest = [str(cores), str(BATCH)]
        self.build = lambda out: timed([SLUICE, "corpus", "build", texts, "--tokenizer", tokenizer, "--out", out, "--threads", str(cores),
                                        "--begin-token", "none", "--end-token", "none", "--json"])
        self.map = lambda out, **more: timed([*script, DATASETS, texts, tokenizer, out, *rest], **more)
        self.plain = lambda out: timed([*script, PLAIN, texts, tokenizer, out, *rest])

    def check(self, folder):
        """The same tokens by all three; how many."""
        built = json.loads(self.build(folder / "built")[1])
        plain, mapped = (folder / "plain"), (folder / "mapped")
        plain.mkdir()
        mapped.mkdir()
        ids = memoryview((folder / "built/corpus.bin").read_bytes()).cast("H")
        found = [(built["tokens"], sum(ids)), tuple(map(int, self.plain(plain)[1].split())),
                 tuple(map(int, self.map(mapped, COUNT="1")[1].split()))]
        if len(set(found)) != 1:
            raise SystemExit(f"tokens and their sums differ: {found}")
        return built["tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=40)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    print("| tokenizer | tokens | corpus build, tokens/s | datasets.map | plain tokenizers | build ÷ map | build ÷ plain |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        texts = folder / "texts.jsonl"
        pieces = write_texts(texts, options.megabytes)
        for i, (name, tokenizer) in enumerate(train_tokenizers(folder, pieces, options.vocabulary).items()):
            programs = Programs(texts, tokenizer, options.cores)
            (folder / f"check-{i}").mkdir()
            tokens = programs.check(folder / f"check-{i}")
            ratios, speeds = {"map": [], "plain": []}, {"build": [], "map": [], "plain": []}
            for repeat in range(options.repeats):
                took = {}
                for program in speeds:
                    out = folder / f"{program}-{i}-{repeat}"
                    out.mkdir()
                    took[program] = getattr(programs, program)(out)[0]
                    speeds[program].append(tokens / took[program])
                for rival in ratios:
                    ratios[rival].append(took[rival] / took["build"])
            speed = {program: f"{statistics.median(all_speeds) / 1e6:.2f}M" for program, all_speeds in speeds.items()}
            shown = {rival: f"{statistics.median(some):.2f} ({min(some):.2f}–{max(some):.2f})" for rival, some in ratios.items()}
            print(f"| {name} | {tokens / 1e6:.1f}M | {speed['build']} | {speed['map']} | {speed['plain']} | {shown['map']} | {shown['plain']} |",
                  flush=True)


if __name__ == "__main__":
    main()
