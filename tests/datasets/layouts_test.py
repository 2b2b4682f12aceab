"""Layouts of data sets: `corpus build` reads what `datasets.load_dataset` does, or refuses what it refuses.

Runs in the environment `datasets` of tools/bootstrap. Random layouts are compared by the files that both choose; some of
every kind by the documents themselves, through the program.
"""

import collections
import json
import logging
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
os.environ["HF_HUB_OFFLINE"] = "1"
TEMPORARY = tempfile.TemporaryDirectory()
os.environ["HF_HOME"] = TEMPORARY.name

import datasets  # noqa: E402
import yaml  # noqa: E402

sys.path.insert(0, str(HERE.parents[1] / "tools"))
sys.path.insert(0, str(HERE.parent / "cli"))
os.dup2(os.open(os.devnull, os.O_RDWR), 3)  # the scripts' channel
import dataset_files  # noqa: E402
from commands import SLUICE  # noqa: E402

datasets.disable_progress_bars()
logging.disable(logging.CRITICAL)
FORMATS = {"json", "csv", "parquet", "text", "arrow"}
SPLITS = ["train", "test", "validation", "dev", "val", "training", "eval", "train_sft", "extra", "valid", "testing"]
ENDINGS = [".json", ".parquet", ".csv", ".tsv", ".txt", ".jsonl.gz", ".md", ".py", ".ndjson", ".arrow", ".zip", ".png", ".JSONL"]


def by_library(folder, subset, split):
    """(format, files), or None where it refuses."""
    try:
        builder = datasets.load_dataset_builder(str(folder), subset or None)
    except Exception:
        return None
    splits, told = builder.config.data_files, builder.info.splits
    if told and set(told) != set(splits) or not splits.get(split):
        return None
    form = next(kind.__module__.split(".")[2] for kind in type(builder).__mro__ if kind.__module__.startswith("datasets.packaged"))
    return (form, [os.path.relpath(file, folder) for file in splits[split]]) if form in FORMATS else None


def by_script(folder, subset, split):
    files = [os.path.relpath(os.path.join(place, name), folder) for place, _, names in os.walk(folder) for name in names]
    texts = {name: (folder / name).read_text() for name in ("README.md", ".huggingface.yaml", "dataset_infos.json")
             if (folder / name).exists()}
    try:
        found = dataset_files.resolve({"name": str(folder), "files": files, "texts": texts, "subset": subset, "split": split})
    except dataset_files.BadInput:
        return None
    return found["format"], found["files"]


class Layout:
    """A random one."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.ending = self.draw.choice([".jsonl"] * 3 + [".parquet", ".csv", ".txt", ".json"])
        self.files = sorted({self.folder() + self.name() for _ in range(self.draw.randint(1, 7))})

    def one(self, *weighted):
        return self.draw.choices([value for value, _ in weighted], [weight for _, weight in weighted])[0]

    def name(self):
        pick = self.draw.choice
        ending = pick(ENDINGS) if self.draw.random() < 0.2 else self.ending
        split, other = pick(SPLITS), pick(["part", "shard", "a", "b", "x", "data", ""])
        return self.one((split, 20), (split + pick("-._ 0") + other, 15), (other + pick("-._ ") + split, 15), (f"{split}-{split}", 5),
                        (f"{split}-0000{self.draw.randint(0, 2)}-of-00003" + pick(["", "-abc"]), 20),
                        (pick(["contest", "trainer", "latest", "protest-1"]), 5),
                        (pick([".hidden", "metadata", "dataset_infos", "config", "task"]), 3), (pick(["a", "b", "part-1"]), 17)) + ending

    def folder(self):
        pick = self.draw.choice
        split = pick(SPLITS)
        return self.one(("", 40), ("data/", 20), (f"{split}/", 15), (f"data/{split}/", 5), (split + pick("-_") + "x/", 5),
                        (pick(["v1/", "v2/", "main/"]), 5), (pick([".cache/", "__pycache__/", "__x__/"]), 3), (pick(["en/", "en/train/"]), 7))

    def pattern(self):
        file = self.draw.choice(self.files)
        folder = file.rpartition("/")[0] + "/" if "/" in file else ""
        return self.one((file, 35), (folder + "*", 15), (folder + "**", 10), ("**/*" + file[-5:], 10), ("*", 5), ("./" + file, 3),
                        (folder + file.rsplit("/", 1)[-1][:2] + "*", 12), ("[a-t]*", 2), ("?" + file[1:], 3), ("nothing*", 2),
                        ("missing.jsonl", 1), (folder, 1))

    def card(self):
        configurations = {}
        for _ in range(self.draw.choice([1, 1, 2, 2, 3])):
            one = {"config_name": self.draw.choice(["default", "main", "socratic", "v1", "v2"])}
            if self.draw.random() < 0.15:
                one["default"] = True
            kind = self.one(("none", 15), ("data_dir", 15), ("pattern", 15), ("patterns", 15), ("splits", 40))
            if kind == "data_dir":
                one["data_dir"] = self.draw.choice(["data", "v1", "main", "train"])
            elif kind == "pattern":
                one["data_files"] = self.pattern()
            elif kind == "patterns":
                one["data_files"] = [self.pattern() for _ in range(self.draw.randint(1, 2))]
            elif kind == "splits":
                splits = self.draw.sample(["train", "test", "train_sft", "validation"], self.draw.randint(1, 3))
                one["data_files"] = [{"split": split, "path": self.one((self.pattern(), 2), ([self.pattern(), self.pattern()], 1))}
                                     for split in splits]
            configurations.setdefault(one["config_name"], one)
        said = {"configs": list(configurations.values())} if self.draw.random() < 0.9 else {"license": "mit"}
        if self.draw.random() < 0.15:
            said["dataset_info"] = {"splits": [{"name": split, "num_examples": 1, "num_bytes": 1} for split in
                                               self.draw.sample(["train", "test"], self.draw.randint(1, 2))]}
        if self.draw.random() < 0.1:
            said["dataset_info"] = [{"config_name": self.draw.choice(["main", "default"])}]
        return "---\n" + yaml.safe_dump(said) + "---\n# words\n"

    def write(self, folder):
        for file in self.files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text("{}" if file.endswith("dataset_infos.json") else json.dumps({"text": file}) + "\n")
        readme = self.one((self.card(), 60), ("# words\n", 20), ("", 20))
        if readme:
            (folder / "README.md").write_text(readme)


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = datasets.Dataset.from_dict({"text": rows})
    if path.suffix == ".parquet":
        data.to_parquet(path)
    elif path.suffix == ".csv":
        data.to_csv(path, index=False)
    else:
        data.to_json(path)


class Layouts(unittest.TestCase):
    def test_random_layouts_choose_the_same_files(self):
        kinds = collections.Counter()
        for seed in range(int(os.environ.get("LAYOUTS", 150))):
            layout = Layout(seed)
            with tempfile.TemporaryDirectory() as place:
                folder = pathlib.Path(place) / "set"
                layout.write(folder)
                for subset in ("", layout.draw.choice(["main", "default", "v1"])):
                    for split in ("train", layout.draw.choice(["test", "train_sft", "validation"])):
                        wanted, found = by_library(folder, subset, split), by_script(folder, subset, split)
                        self.assertEqual(found, wanted, (seed, subset, split, layout.files))
                        kinds[wanted[0] if wanted else "refused"] += 1
        self.assertGreater(kinds["json"], 10, kinds)

    def documents(self, folder, *options):
        """What the program reads; None where it refuses."""
        with tempfile.TemporaryDirectory() as out:
            built = subprocess.run([SLUICE, "corpus", "build", folder, "--tokenizer", self.tokenizer, "--out", out, "--json", *options],
                                   capture_output=True, text=True)
            self.assertIn(built.returncode, (0, 2), built.stderr)
            if built.returncode != 0:
                return None
            shown = subprocess.run([SLUICE, "corpus", "show", f"{out}/corpus", "--json", *map(str, range(json.loads(built.stdout)["documents"]))],
                                   capture_output=True, text=True, check=True)
            return [json.loads(line)["text"] for line in shown.stdout.splitlines()]

    def compare(self, folder, subset="", split="train"):
        try:
            wanted = list(datasets.load_dataset(str(folder), subset or None, split=split)["text"])
        except Exception:
            wanted = None
        options = (["--subset", subset] if subset else []) + ["--split", split]
        self.assertEqual(self.documents(folder, *options), wanted, (folder, subset, split))
        return wanted

    def test_documents_are_the_librarys(self):
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            words = folder / "words.txt"
            words.write_text("".join(f"row {i} of {i * i} in train.jsonl, or é\n" for i in range(2000)))
            self.tokenizer = folder / "tokenizer"
            subprocess.run([SLUICE, "corpus", "build", words, "--train-tokenizer", "300", "--out", self.tokenizer],
                           check=True, capture_output=True)
            names = {"by-name": ["train.csv", "test.csv"], "by-folder": ["data/train/a.jsonl", "data/train/b.jsonl", "data/test/c.jsonl"],
                     "by-shards": ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/extra-00000-of-00001.parquet"],
                     "alone": ["some.jsonl"], "numbered": ["train_0.jsonl", "train_10.jsonl", "train_2.jsonl", "val-1.jsonl"]}
            for name, files in names.items():
                for i, file in enumerate(files):
                    write_rows(folder / name / file, [f"row {row} of {file}, é" for row in range(i + 2)])
                self.assertTrue(self.compare(folder / name))
                for split in ("test", "validation", "extra"):
                    self.compare(folder / name, split=split)
            card = {"configs": [{"config_name": "a", "data_files": [{"split": "train", "path": "a/*.csv"}, {"split": "train_sft", "path": ["b/*"]}]},
                                {"config_name": "b", "data_files": "b/*"}]}
            for file in ("a/1.csv", "a/2.csv", "b/3.csv"):
                write_rows(folder / "card" / file, [f"row of {file}", "two\nlines, \"quoted\""])
            (folder / "card/README.md").write_text("---\n" + yaml.safe_dump(card) + "---\n")
            self.assertIsNone(self.compare(folder / "card"))
            for subset in ("a", "b", "c"):
                for split in ("train", "train_sft"):
                    self.compare(folder / "card", subset, split)
            saved = datasets.DatasetDict({name: datasets.Dataset.from_dict({"text": [f"row of {name}", "é"]}) for name in ("train", "held")})
            saved.save_to_disk(folder / "saved")
            for split in ("train", "held"):
                self.assertEqual(self.documents(folder / "saved", "--split", split), list(saved[split]["text"]))
            self.assertIsNone(self.documents(folder / "saved", "--split", "test"))


if __name__ == "__main__":
    unittest.main()
