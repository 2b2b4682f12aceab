"""Corpora and their inputs in a bucket: what is built and trained is the same as from this machine, also when the server
drops connections, is slow or unavailable, and an object that changes meanwhile is named."""

import json
import os
import pathlib
import subprocess
import unittest

from bucket import PYTHON, Bucket, losses

PUT = """
import boto3, os, sys
store = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")
for path, key in zip(sys.argv[1::2], sys.argv[2::2]):
    store.upload_file(path, "bucket", key)
"""


class Corpora(Bucket):
    def put(self, files):
        """{path: key}"""
        words = [str(word) for pair in files.items() for word in pair]
        subprocess.run([PYTHON, "-c", PUT, *words], check=True)

    def inputs(self, name, rows=400):
        base = self.directory / name
        base.mkdir()
        for part in range(3):
            (base / f"{part}.jsonl").write_text("".join(json.dumps({"text": f"row {row} of part {part}, é"}) + "\n" for row in range(rows)))
        (base / "note.txt").write_text("a text of some words\n" * 40)
        return base

    def build(self, source, out, *options, **arguments):
        return self.finish(self.start([self.program(), "corpus", "build", source, "--out", out, "--tokenizer", "tokenizer", "--json",
                                       *options], **arguments))

    def setUp(self):
        super().setUp()
        self.base = self.inputs("in")
        self.program_output("corpus", "build", str(self.base), "--suffix", ".jsonl,.txt", "--out", "tokenizer", "--train-tokenizer", "300")
        self.prefix = f"{self.id().rsplit('.', 1)[-1]}/in"
        self.put({path: f"{self.prefix}/sub/{path.name}" for path in self.base.iterdir()})

    def files(self, folder):
        return {path.name: path.read_bytes() for path in (self.directory / folder).iterdir()
                if path.name not in ("lengths.json", "part.json")}

    def test_inputs_in_a_bucket_are_those_of_this_machine(self):
        self.assertEqual(self.build(str(self.base), "here", "--suffix", ".jsonl,.txt").status, 0)
        place = f"s3://bucket/{self.prefix}"
        for kind in ("", "503", "drop", "slow"):
            self.faults(3 if kind else 0, kind or "503")
            outcome = self.build(place, f"there{kind}", "--suffix", ".jsonl,.txt")
            self.assertEqual(outcome.status, 0, str(outcome))
            self.assertEqual(self.files(f"there{kind}"), self.files("here"), kind)
        self.faults(0)
        for part in (1, 2, 3):
            self.assertEqual(self.build(place, f"part{part}", "--suffix", ".jsonl,.txt", "--part", f"{part}/3").status, 0)
        self.program_output("corpus", "merge", *(f"part{part}/corpus" for part in (3, 1, 2)), "--out", "merged")
        self.assertEqual(self.files("merged"), self.files("here"))

    def test_a_data_set_in_a_bucket(self):
        key = f"{self.prefix}-set"
        card = self.directory / "README.md"
        card.write_text("---\nconfigs:\n- config_name: a\n  data_files: 0.jsonl\n- config_name: b\n  data_files: [1.jsonl, 2.jsonl]\n---\n")
        self.put({card: f"{key}/README.md", **{self.base / f"{i}.jsonl": f"{key}/{i}.jsonl" for i in range(3)}})
        self.assertIn("choose from a, b with --subset", self.build(f"s3://bucket/{key}", "none").stderr)
        self.assertEqual(json.loads(self.build(f"s3://bucket/{key}", "b", "--subset", "b").stdout)["documents"], 800)

    def test_an_object_that_changes_is_named(self):
        source = self.directory / "large.jsonl"
        source.write_text("".join(json.dumps({"text": f"row {row} of many"}) + "\n" for row in range(20000)))
        key = f"{self.prefix}/large.jsonl"
        self.put({source: key})
        self.faults(1, "change", "GET", key)
        outcome = self.build(f"s3://bucket/{key}", "changed")
        self.assertEqual(outcome.status, 2, str(outcome))
        self.assertRegex(outcome.stderr, "large.jsonl has been replaced")

    def test_training_reads_a_corpus_in_a_bucket(self):
        corpus = self.directory / "corpus"
        prefix = f"{self.prefix}-corpus/corpus"
        self.put({pathlib.Path(f"{corpus}{suffix}"): prefix + suffix for suffix in (".bin", ".idx")})
        place, cache = f"s3://bucket/{prefix}", dict(os.environ, SLUICE_DEPS=str(self.directory / "deps"))
        here = self.configure("here-run", train__steps=3)
        self.train("here-run", 2)
        for kind in ("503", "drop"):
            run = self.configure(f"there-{kind}", train__steps=3, data__train=[[place, 1.0]])
            self.faults(4, kind)
            self.train(f"there-{kind}", 2, env=cache)
            self.assertGreater(self.faults(0), 0)
            self.assertEqual(losses(run), losses(here), kind)
        self.assertEqual(len(list((self.directory / "deps/corpora").glob("*.idx"))), 1)

    def test_what_lies_beside_a_corpus_in_a_bucket_is_found(self):
        deps = self.directory / "deps"
        (deps / "tools").parent.mkdir(exist_ok=True)
        (deps / "tools").symlink_to(pathlib.Path(os.environ["SLUICE_DEPS"]) / "tools")
        self.assertEqual(self.build(str(self.base), "built", "--suffix", ".jsonl,.txt").status, 0)
        key = f"{self.prefix}-beside"
        self.put({path: f"{key}/{path.name}" for path in (self.directory / "built").iterdir()})
        place = f"s3://bucket/{key}"

        def said(*arguments):
            outcome = self.finish(self.start([self.program(), *arguments], env=dict(os.environ, SLUICE_DEPS=str(deps))))
            self.assertEqual(outcome.status, 0, str(outcome))
            return outcome.stdout

        for kind in ("503", "drop"):
            self.faults(4, kind)
            self.assertIn("row 3 of part 0, é", said("corpus", "show", f"{place}/corpus", "3"))
        self.faults(0)
        here, there = said("inspect", "built/corpus"), said("inspect", f"{place}/corpus")
        self.assertEqual(there.replace(place, "built").split(), here.split())
        for name in (place, f"{place}/corpus.idx"):
            self.assertEqual(said("inspect", name), there)
        lengths = said("lengths", "built/corpus", "--json").replace("built", place)
        for name in ("corpus", "corpus.bin"):
            self.assertEqual(json.loads(said("lengths", f"{place}/{name}", "--json"))["lengths"], json.loads(lengths)["lengths"])
        for name in (place, f"{place}/lengths.json"):
            self.assertEqual(json.loads(said("lengths", name, "--json"))["lengths"], json.loads(lengths)["lengths"])
        self.assertEqual(len(list((deps / "corpora").glob("*.beside"))), 1)
        changed = self.directory / "tokenizer_config.json"
        changed.write_text("{}")
        self.put({changed: f"{key}/tokenizer_config.json"})
        said("inspect", place)
        (beside,) = (deps / "corpora").glob("*.beside")
        self.assertEqual((beside / "tokenizer_config.json").read_text(), "{}")

    def test_a_run_takes_the_tokenizer_beside_a_corpus_in_a_bucket(self):
        self.assertEqual(self.build(str(self.base), "built", "--suffix", ".jsonl,.txt").status, 0)
        key = f"{self.prefix}-trained"
        self.put({path: f"{key}/{path.name}" for path in (self.directory / "built").iterdir()})
        cache = dict(os.environ, SLUICE_DEPS=str(self.directory / "deps"))
        self.configure("bucket-run", model__vocab=300, train__steps=2, data__train=[[f"s3://bucket/{key}/corpus", 1.0]],
                       checkpoint__every=2)
        self.train("bucket-run", 2, env=cache)
        self.program_output("export", "bucket-run", "--out", "exported")
        tokenizer = self.directory / "built" / "tokenizer.model"
        self.assertEqual((self.directory / "exported" / "tokenizer.model").read_bytes(), tokenizer.read_bytes())


if __name__ == "__main__":
    unittest.main()
