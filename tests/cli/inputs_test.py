"""What people bring into corpus build and configurations: bad lines, marks of files, numbers as texts, broken TOML."""

import json
import os
import pathlib
import struct
import subprocess
import tomllib
import unittest
import zlib

from commands import CommandTest, call

TOOLS = pathlib.Path(os.environ.get("SLUICE_DEPS", pathlib.Path.home() / ".cache" / "sluice")) / "tools/bin/python"
# A table of which one cell is null and one is not UTF-8, as writers of other languages have let through.
WRITER = """
import sys
import pyarrow, pyarrow.parquet
parts = [b"first", b"", b"\\xff\\xfe broken", b"last"]
ends = [0]
for part in parts:
    ends.append(ends[-1] + len(part))
offsets = pyarrow.py_buffer(pyarrow.array(ends, pyarrow.int32()).buffers()[1].to_pybytes())
valid = pyarrow.py_buffer(bytes([0b1101]))
column = pyarrow.StringArray.from_buffers(len(parts), offsets, pyarrow.py_buffer(b"".join(parts)), valid)
pyarrow.parquet.write_table(pyarrow.table({"text": column}), sys.argv[1])
"""
A, B = '{"text": "first"}', '{"text": "last"}'


class Documents(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        words = cls.folder / "words.txt"
        words.write_text("".join(f"word {i} of many, first or last, {i * i}\n" for i in range(2000)), encoding="utf-8")
        cls.done("corpus", "build", words, "--out", cls.folder / "trained", "--train-tokenizer", 300)

    def build(self, name, data, *arguments):
        """(result, texts) of a build of one file."""
        path = self.folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return self.build_path(path, *arguments)

    def build_path(self, path, *arguments):
        out = self.folder / "out"
        result = call("corpus", "build", path, "--out", out, "--tokenizer", self.folder / "trained", "--end-token", "none",
                      "--json", *arguments)
        if result.returncode != 0:
            return result, None
        documents = json.loads(result.stdout)["documents"]
        shown = self.done("corpus", "show", out / "corpus", *range(documents), "--json").splitlines()
        return result, [json.loads(line)["text"] for line in shown]

    def test_a_bad_document_is_left_out_in_every_kind_of_file(self):
        bad = ('{"text": "abc', '{"text": 7}', '{"title": "x"}', "null", '{"text": "\\ud83d"}')
        for line in bad:
            with self.subTest(line):
                result, texts = self.build("a.jsonl", f"{A}\n{line}\n{B}\n")
                self.assertEqual(texts, ["first", "last"], result.stderr)
                self.assertRegex(result.stderr, r"1 documents cannot be read and were left out: \S+/a\.jsonl:2\b")
                self.assertEqual(json.loads(result.stdout)["refused_documents"], 1)
                strict, _ = self.build("a.jsonl", f"{A}\n{line}\n{B}\n", "--strict")
                self.assertEqual(strict.returncode, 2)
                self.assertRegex(strict.stderr, r"^sluice: \S+/a\.jsonl:2\b")
        for line in bad[1:]:
            result, texts = self.build("a.json", f"[{A},\n{line},\n{B}]")
            self.assertEqual(texts, ["first", "last"], result.stderr)
            self.assertRegex(result.stderr, r"a\.json:2\b")
        result, texts = self.build("a.jsonl", f'{A}\n{{"text": null}}\n'.encode() + b'{"text": "caf\xe9"}\n' + B.encode())
        self.assertEqual(texts, ["first", "last"])
        self.assertIn("a.jsonl:3 is not JSON at column 14: a string holds bytes that are not UTF-8", result.stderr)
        none, _ = self.build("a.jsonl", "nothing\n" * 5)
        self.assertEqual(none.returncode, 2)
        self.assertRegex(none.stderr, r"5 documents cannot be read: \S+a\.jsonl:1 .*a\.jsonl:3 ")

    def test_cells_of_tables(self):
        path = self.folder / "cells.parquet"
        subprocess.run([TOOLS, "-c", WRITER, path], check=True)
        result, texts = self.build_path(path)
        self.assertEqual(texts, ["first", "last"], result.stderr)
        self.assertRegex(result.stderr, r"1 documents cannot be read and were left out: \S+/cells\.parquet, row 2: not UTF-8")
        self.assertEqual(json.loads(result.stdout)["empty_documents"], 1)

    def test_what_python_writes_is_read(self):
        result, texts = self.build("a.jsonl", '{"text": "first", "x": NaN}\n{"text": "last", "x": [-Infinity, 1e999]}\n')
        self.assertEqual(texts, ["first", "last"], result.stderr)

    def test_marks_of_files(self):
        lines = f"{A}\n{B}\n"
        for name, data in (("a.jsonl", b"\xef\xbb\xbf" + lines.encode()), ("a.jsonl", lines.replace("\n", "\r\n").encode()),
                           ("a.json", b"\xef\xbb\xbf[\r\n" + A.encode() + b",\r\n" + B.encode() + b"]")):
            self.assertEqual(self.build(name, data)[1], ["first", "last"])
        self.assertEqual(self.build("a.txt", b"\xef\xbb\xbffirst")[1], ["first"])
        self.assertEqual(len(self.build("a.jsonl", '{"text": "a\u2028b\u0085c"}\n')[1]), 1)
        for name in ("a.jsonl", "a.txt"):
            result, _ = self.build(name, lines.encode("utf-16"))
            self.assertEqual(result.returncode, 2)
            self.assertIn("UTF-16: convert it to UTF-8", result.stderr)

    def test_compressed_streams(self):
        def member(data):
            packer = zlib.compressobj(wbits=31)
            return packer.compress(data) + packer.flush()
        data = member(A.encode() + b"\n") + bytes(512) + member(B.encode() + b"\n") + bytes(1000)
        self.assertEqual(self.build("a.jsonl.gz", data)[1], ["first", "last"])
        # A frame of stored blocks, between skippable ones.
        stored = B.encode()
        block = struct.pack("<I", 1 | len(stored) << 3)[:3] + stored
        frame = b"\x28\xb5\x2f\xfd\x20" + bytes([len(stored)]) + block
        skippable = b"\x51\x2a\x4d\x18\x02\x00\x00\x00ab"
        self.assertEqual(self.build("a.jsonl.zst", skippable + frame + skippable + bytes(7))[1], ["last"])

    def test_lists_need_their_commas(self):
        for text in (f"[{A}, {B},]", f"[{A},, {B}]", f"[, {A}, {B}]", f"[{A} {B}]", f"[{A}, {B}"):
            result, _ = self.build("a.json", text)
            self.assertEqual(result.returncode, 2, text)
            self.assertRegex(result.stderr, r"a\.json:1: ")

    def test_pairs_keep_their_order(self):
        tokenizer = self.folder / "chat"
        script = """
import json, pathlib, sys
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
folder = pathlib.Path(sys.argv[1])
folder.mkdir(exist_ok=True)
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken("<e>", special=True)])
tokenizer.save(str(folder / "tokenizer.json"))
(folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<e>", "chat_template":
    "{% for m in messages %}{{ m.role }}:{{ m.content }}<e>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"}))
"""
        subprocess.run([TOOLS, "-c", script, tokenizer], check=True)
        rows = [{"prompt": "p", "chosen": "a", "rejected": "b"}, {"prompt": "p", "chosen": "only"}, {"prompt": "p", "rejected": "only"},
                {"prompt": "q", "chosen": "c", "rejected": "d"}]
        path = self.folder / "pairs.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        told = json.loads(self.done("corpus", "build", path, "--pairs", "--tokenizer", tokenizer, "--out", self.folder / "pairs", "--json"))
        self.assertEqual([told[side]["documents"] for side in ("chosen", "rejected")], [2, 2])


class Configurations(CommandTest):
    HEAD = "[model]\nhf = 'x'\n\n[data]\ntrain = [['c', 1]]\n"

    def keys(self, text, *settings):
        (self.folder / "run.toml").write_text(text)
        return call("keys", "config", "--config", self.folder / "run.toml", *[part for each in settings for part in ("--set", each)])

    def test_every_fault_of_toml_has_its_line(self):
        for end in ("[", "[.]\n", "[..]\n", "[!]\n", "[a", "x\n", "= 1\n", "a = 01\n", "a = 'b\n"):
            result = self.keys(self.HEAD + end)
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, r"run\.toml:[67]: ", end)

    def test_texts_are_printed_so_that_they_read_back(self):
        for text in ("a\x80b", "a\\b'c\"d", "é\u202e", "two\nlines"):
            printed = self.keys(self.HEAD + f"[log]\ndir = {json.dumps(text)}\n")
            self.assertEqual(printed.returncode, 0, printed.stderr)
            self.assertEqual(tomllib.loads(printed.stdout)["log"]["dir"], text)

    def test_numbers_are_taken_for_what_they_mean_or_named(self):
        for setting, key, value in (("train.steps=1e3", "steps", 1000), ("train.steps=4.0", "steps", 4)):
            self.assertEqual(tomllib.loads(self.keys(self.HEAD, setting).stdout)["train"][key], value)
        self.assertEqual(tomllib.loads(self.keys(self.HEAD, "optimizer.lr=1").stdout)["optimizer"]["lr"], 1)
        for setting, said in (('optimizer.lr="1e-5"', "write 1e-5 without quotes"), ("optimizer.weight_decay=0,1", "write 0.1"),
                              ("data.validation_fraction=5%", "write 0.05"), ("optimizer.lr=nan", "a number from 0 to 1000"),
                              ("optimizer.lr=inf", "a number from 0 to 1000"), ("train.steps=1.5", "a whole number from 1"),
                              ("train.steps=0", "a whole number from 1"), ("data.validation_fraction=1.5", "from 0 to 0.9"),
                              ("optimizer.learning_rate=1e-4", "unknown key"), ("train.dtype=bf16", "one of auto, float32, bfloat16"),
                              ('data.train=[["c", 1e-10]]', "from 1e-09 to 1e+09")):
            result = self.keys(self.HEAD, setting)
            self.assertEqual(result.returncode, 2, setting)
            self.assertIn(said, result.stderr)


if __name__ == "__main__":
    unittest.main()
