"""corpus build, merge and show: tables and data sets of Hugging Face, kills, documents as text."""

import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import time
import unittest

from commands import SLUICE, CommandTest, call

TOOLS = pathlib.Path(os.environ.get("SLUICE_DEPS", pathlib.Path.home() / ".cache" / "sluice")) / "tools/bin/python"
# Writes the texts, given as JSON, as Parquet with several row groups, or as `save_to_disk` of datasets does.
WRITER = """
import json, pathlib, sys
import pyarrow, pyarrow.parquet
path, texts = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
table = pyarrow.table({"id": list(range(len(texts))), "content": texts})
if path.suffix == ".parquet":
    pyarrow.parquet.write_table(table, path, row_group_size=2)
else:
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=2)
"""
TEXTS = ["one", "two\nlines", "", None, "d\u00e9j\u00e0 vu", "six"]


def write_table(path, texts):
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([TOOLS, "-c", WRITER, path, json.dumps(texts)], check=True)


class CorpusCommands(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        words = cls.folder / "words.txt"
        words.write_text("".join(f"word {i} of many, {i * i}\n" for i in range(2000)), encoding="utf-8")
        cls.done("corpus", "build", words, "--out", cls.folder / "trained", "--train-tokenizer", 300)
        cls.tokenizer = cls.folder / "trained"

    def build(self, *inputs, out):
        return json.loads(self.done("corpus", "build", *inputs, "--out", self.folder / out, "--tokenizer", self.tokenizer,
                                    "--text-key", "content", "--json"))

    def shown(self, corpus):
        """The texts of all documents, without the token that ends them."""
        prefix = self.folder / corpus / "corpus"
        texts = []
        while (result := call("corpus", "show", prefix, len(texts), "--json")).returncode == 0:
            texts.append(json.loads(result.stdout)["text"])
        return texts

    def test_parquet(self):
        write_table(self.folder / "table.parquet", TEXTS)
        built = self.build(self.folder / "table.parquet", out="parquet")
        self.assertEqual(built["documents"], 4)
        self.assertEqual(self.shown("parquet"), [text for text in TEXTS if text])
        wrong = call("corpus", "build", self.folder / "table.parquet", "--out", self.folder / "wrong", "--tokenizer",
                     self.tokenizer, "--text-key", "id")
        self.assertEqual(wrong.returncode, 2)
        self.assertRegex(wrong.stderr, "column 'id' holds int64, not text: .*id, content.*--text-key")

    def test_no_table(self):
        (self.folder / "bad.parquet").write_text("words")
        wrong = call("corpus", "build", self.folder / "bad.parquet", "--out", self.folder / "bad", "--tokenizer", self.tokenizer)
        self.assertEqual(wrong.returncode, 2)
        self.assertRegex(wrong.stderr, "bad.parquet: cannot be read as a table")
        self.assertEqual(len(wrong.stderr.splitlines()), 1)

    def test_saved_data_set(self):
        folder = self.folder / "saved"
        for name, texts in (("train", TEXTS), ("test", ["held out"])):
            write_table(folder / name / "data-00000-of-00001.arrow", texts)
            (folder / name / "dataset_info.json").write_text("{}")
            (folder / name / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
        (folder / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
        self.build(folder, out="of_saved")
        self.assertEqual(self.shown("of_saved"), [text for text in TEXTS if text])
        self.build(folder, "--split", "test", out="of_test")
        self.assertEqual(self.shown("of_test"), ["held out"])

    def test_hub_copy(self):
        folder = self.folder / "hub"
        for i in range(2):
            write_table(folder / "data" / f"train-0000{i}-of-00002.parquet", [f"part {i}"])
        write_table(folder / "data" / "test-00000-of-00001.parquet", ["held out"])
        (folder / "README.md").write_text("---\nconfigs: []\n---\n")
        self.build(folder, out="of_hub")
        self.assertEqual(self.shown("of_hub"), ["part 0", "part 1"])

    def test_show_and_merge(self):
        text = self.done("corpus", "show", self.tokenizer / "corpus", 0)
        self.assertIn("word 1999 of many, 3996001\n", text)
        ids = self.done("corpus", "show", self.tokenizer / "corpus", 0, "--ids")
        self.assertRegex(ids, r"(?m)^document 0, \d+ tokens:\n[\d ]+ 1$")
        self.done("corpus", "merge", self.tokenizer / "corpus", self.tokenizer / "corpus", "--out", self.folder / "twice")
        self.assertEqual(len(self.shown("twice")), 2)
        absent = call("corpus", "show", self.tokenizer / "corpus", 1)
        self.assertEqual(absent.returncode, 2)
        self.assertIn("no document 1", absent.stderr)


    def test_damaged_arrow_files_are_named(self):
        path = self.folder / "damaged.arrow"
        write_table(path, TEXTS)
        sound = path.read_bytes()
        ends = struct.pack("<3i", 0, 3, 12)  # where the first two texts begin and end
        self.assertIn(ends, sound)
        for damaged in (sound.replace(ends, struct.pack("<3i", 0, 3, 2**30)), sound.replace(ends, struct.pack("<3i", 0, 2**30, 12)),
                        sound.replace(ends, struct.pack("<3i", -5, 3, 12)), sound[:len(sound) * 3 // 4], sound[:200]):
            path.write_bytes(damaged)
            wrong = call("corpus", "build", path, "--out", self.folder / "damaged", "--tokenizer", self.tokenizer, "--text-key", "content")
            self.assertEqual(wrong.returncode, 2, wrong.stderr)
            self.assertRegex(wrong.stderr, "damaged.arrow: cannot be read as a table: it is .*damaged")


class LongBuild(CommandTest):
    """Of `make soak`: a state is saved every 64 MiB."""

    def test_continues(self):
        words = self.folder / "words.txt"
        words.write_text("".join(f"word {i} of many, {i * i}\n" for i in range(2000)), encoding="utf-8")
        tokenizer = self.folder / "trained"
        self.done("corpus", "build", words, "--out", tokenizer, "--train-tokenizer", 300)
        lines = self.folder / "lines.jsonl"
        with lines.open("w", encoding="utf-8") as file:
            for i in range(1000):
                file.write(json.dumps({"content": f"{i} " * 20_000}) + "\n")
        arguments = ["corpus", "build", lines, "--out", self.folder / "killed", "--tokenizer", tokenizer,
                     "--text-key", "content", "--json"]
        child = subprocess.Popen([SLUICE, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(child.kill)
        while not (self.folder / "killed/corpus.unfinished/state.json").exists() and child.poll() is None:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.wait()
        self.assertFalse((self.folder / "killed/corpus.idx").exists())
        built = json.loads(self.done(*arguments))
        self.assertGreater(built["continued_documents"], 0)
        self.assertEqual(built["documents"], 1000)


class KilledBuild(CommandTest):
    def kill_while_it_grows(self, command, out):
        """Whether the build was killed before it was whole."""
        for _ in range(20):
            build = subprocess.Popen([SLUICE, *map(str, command)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            while build.poll() is None and not list(out.glob("*.unfinished/bin")):
                time.sleep(0.001)
            build.send_signal(signal.SIGKILL)
            build.wait()
            if list(out.glob("*.unfinished/bin")):
                return True
        return False

    def files(self, folder):
        return {path.name: path.read_bytes() for path in (self.folder / folder).iterdir()}

    def command(self, folder):
        return ["corpus", "build", self.folder / "texts", "--out", self.folder / folder, "--train-tokenizer", "300"]

    def test_what_a_killed_build_leaves_goes_with_the_next(self):
        chance = random.Random(5)
        words = ["".join(chance.choices("abcdefghijkl", k=chance.randrange(2, 9))) for _ in range(2000)]
        (self.folder / "texts").mkdir()
        for number in range(30):
            (self.folder / "texts" / f"{number}.txt").write_text(" ".join(chance.choices(words, k=20_000)))
        self.done(*self.command("whole"))
        self.assertTrue(self.kill_while_it_grows(self.command("made"), self.folder / "made"), "no build was killed while it wrote")
        self.done(*self.command("made"))
        self.assertEqual(self.files("made"), self.files("whole"))

    def test_a_part_that_was_killed_resumes(self):
        lines = self.folder / "lines.jsonl"
        lines.write_text("".join(json.dumps({"text": f"line {i} of many " * (i % 90)}) + "\n" for i in range(9000)))
        (self.folder / "words.txt").write_text(" ".join(f"line {i} of many" for i in range(900)))
        self.done("corpus", "build", self.folder / "words.txt", "--out", self.folder / "t", "--train-tokenizer", 300)

        def part(out, number):
            return ["corpus", "build", lines, "--out", self.folder / out, "--tokenizer", self.folder / "t", "--part", f"{number}/3",
                    "--dedup", "exact", "--threads", 1]

        for number in (1, 2, 3):
            self.done(*part(f"sound-{number}", number))
        for number in (1, 2, 3):
            made = self.folder / f"killed-{number}"
            self.assertTrue(self.kill_while_it_grows(part(made.name, number), made), "no part was killed while it wrote")
            prefixes = [self.folder / f"sound-{other}/corpus" for other in (1, 2, 3) if other != number]
            missing = call("corpus", "merge", *prefixes, "--out", self.folder / "merged")
            self.assertRegex(missing.stderr, f"of 3 parts one is missing: {number}/3")
            broken = call("corpus", "merge", *prefixes, made / "corpus", "--out", self.folder / "merged")
            self.assertEqual(broken.returncode, 2)
            self.assertIn(f"{made}/corpus", broken.stderr)
            self.done(*part(made.name, number))
            self.assertEqual(self.files(made.name), self.files(f"sound-{number}"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *(sys.argv[1:] or ["CorpusCommands", "KilledBuild"])])
