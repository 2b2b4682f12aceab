#!/usr/bin/env python3
"""Finds the function for its docstring, in files of Python's standard library that no model has seen.

An encoder of one layer (encoder.json), drawn at random, learns from pairs of a docstring and its function in the library's other
files (pairs.py). The report says how often a question's own function is among the ten nearest of all functions that are held out,
by the model before and after, and by words in common (tf-idf), which needs no model. Writes FOLDER/report.md.

    make retrieval                                          the encoder, in minutes on two cores
    examples/retrieval/retrieval.py --model models/smollm2  another model's folder (examples/smollm2.py writes this one)
"""

import argparse
import collections
import json
import math
import operator
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
NEAREST = 10
SHOWN = 3  # questions in the report


class Example:
    def __init__(self, args):
        self.args, self.folder = args, args.folder
        self.encoder = json.loads((HERE / "encoder.json").read_text())
        self.tokenizer = args.model or self.folder / "corpora" / "text"

    def sluice(self, *arguments):
        command = [self.args.sluice, *map(str, arguments)]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
        return done.stdout

    def train(self, config, **settings):
        told = [part for key, value in settings.items() for part in ("--set", f"{key.replace('__', '.')}={json.dumps(value)}")]
        self.sluice("train", "--config", HERE / config, *told)

    def build_corpora(self):
        subprocess.run([sys.executable, HERE / "pairs.py", self.folder], check=True)
        texts = [self.folder / "train" / f"{name}.jsonl" for name in ("questions", "functions")]
        if self.args.model is None:
            self.sluice("corpus", "build", *texts, "--train-tokenizer", self.encoder["vocab_size"], "--out", self.tokenizer)
        for path in texts:
            self.sluice("corpus", "build", path, "--tokenizer", self.tokenizer, "--end-token", "added",
                        "--out", self.folder / "corpora" / path.stem)

    def first_model(self):
        """The folder of the model that is tuned; one without weights is drawn at random."""
        if self.args.model is not None:
            return self.args.model
        folder = self.folder / "models" / "start"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(self.encoder))
        return folder

    def embedding_model(self, name, model, **settings):
        """The folder of a model that ends in embeddings, tuned as the settings say."""
        corpora = self.folder / "corpora"
        self.train("embedding.toml", model__hf=str(model), data__train=str(corpora / "questions"),
                   head__positives=[str(corpora / "functions")], log__dir=str(self.folder / name), **settings)
        self.sluice("export", self.folder / name, "--out", self.folder / "models" / name)
        return self.folder / "models" / name

    def embeddings(self, model, name):
        lines = self.sluice("embed", self.folder / "held_out" / f"{name}.jsonl", "--model", model, "--tokenizer", self.tokenizer,
                            "--context-length", self.args.context_length)
        return [json.loads(line)["embedding"] for line in lines.splitlines()]

    def texts(self, name):
        return [json.loads(line)["text"] for line in (self.folder / "held_out" / f"{name}.jsonl").read_text().splitlines()]


def nearest_by_model(example, model):
    """By question all functions, the nearest first."""
    functions = example.embeddings(model, "functions")
    return [sorted(range(len(functions)), key=lambda i, own=question: -sum(map(operator.mul, own, functions[i])))
            for question in example.embeddings(model, "questions")]


def words_of(text):
    return collections.Counter(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text))


def nearest_by_words(questions, functions):
    counts = [words_of(text) for text in functions]
    documents = collections.Counter(word for words in counts for word in words)
    rarity = {word: math.log(len(functions) / number) for word, number in documents.items()}
    sizes = [math.sqrt(sum((number * rarity[word]) ** 2 for word, number in words.items())) or 1 for words in counts]

    def likeness(question, i):
        return sum(number * counts[i][word] * rarity.get(word, 0) ** 2 for word, number in question.items()) / sizes[i]
    return [sorted(range(len(functions)), key=lambda i, own=words_of(text): -likeness(own, i)) for text in questions]


def figures(nearest):
    places = [order.index(own) for own, order in enumerate(nearest)]
    return {"recall_at_1": sum(place == 0 for place in places) / len(places),
            "recall_at_10": sum(place < NEAREST for place in places) / len(places),
            "mean_reciprocal_rank": sum(1 / (1 + place) for place in places) / len(places)}


def head_of(function):
    return re.search(r"def .*", function).group(0)


def chance(functions):
    """The figures of an order drawn at random."""
    return {"recall_at_1": 1 / functions, "recall_at_10": NEAREST / functions,
            "mean_reciprocal_rank": sum(1 / place for place in range(1, functions + 1)) / functions}


def report(example, rows, nearest, trained, seconds):
    questions, functions = example.texts("questions"), example.texts("functions")
    lines = ["# Functions found by their docstrings", "",
             f"{len(questions)} functions of files of Python {sys.version.split()[0]}'s standard library that no model has seen. "
             f"Training took {trained:.0f} s of {seconds:.0f} s in all.", "",
             "| by | recall at 1 | recall at 10 | mean reciprocal rank |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {name} | " + " | ".join(f"{value:.3f}" for value in row.values()) + " |" for name, row in rows.items()]
    for i in range(0, len(questions), max(1, len(questions) // SHOWN))[:SHOWN]:
        lines += ["", f"> {questions[i]}", "", f"Its own function is number {nearest[i].index(i) + 1}. The nearest:", ""]
        lines += [f"{place + 1}. `{head_of(functions[j])}`" for place, j in enumerate(nearest[i][:3])]
    return "\n".join(lines) + "\n"


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/retrieval"), help="a new folder for all of it")
    parser.add_argument("--model", type=pathlib.Path, help="a model's folder, in place of the encoder that is drawn here")
    parser.add_argument("--context-length", type=int, default=128, help="tokens of a text at most; others are cut")
    parser.add_argument("--steps", type=int, help="steps of training")
    return parser.parse_args()


def main():
    args = options()
    if args.folder.exists():
        sys.exit(f"{args.folder} is there already: remove it, or name another --folder")
    begin = time.monotonic()
    example = Example(args)
    example.build_corpora()
    model = example.first_model()
    steps = {"train__steps": args.steps} if args.steps else {}
    before = example.embedding_model("untuned", model, train__steps=1, optimizer__lr=0.0, optimizer__min_lr=0.0)
    began = time.monotonic()
    after = example.embedding_model("embedding", model, data__context_length=args.context_length, **steps)
    trained = time.monotonic() - began
    nearest = {"words in common (tf-idf)": nearest_by_words(example.texts("questions"), example.texts("functions")),
               "the model before training": nearest_by_model(example, before), "the model": nearest_by_model(example, after)}
    rows = {"chance": chance(len(example.texts("functions")))} | {name: figures(each) for name, each in nearest.items()}
    text = report(example, rows, nearest["the model"], trained, time.monotonic() - begin)
    (args.folder / "report.md").write_text(text)
    (args.folder / "figures.json").write_text(json.dumps(rows, indent=2) + "\n")
    print(text)


if __name__ == "__main__":
    main()
