"""Folders as inputs of `corpus build`: data sets of the Hub by their cards, and what folders hide."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import unittest

from commands import SLUICE, CommandTest, call

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "corpus"
# As much of Ray as the example calls: tasks that are run when they are asked for.
RAY = """
def init(): pass
def remote(**options): return Task
class Task:
    def __init__(self, work): self.work = work
    def remote(self, *arguments): return self.work(*arguments)
def get(values): return values
"""


def commands_of(path):
    """The scripts that the containers of a file of Kubernetes run."""
    lines, scripts = path.read_text().splitlines(), []
    for i, line in enumerate(lines):
        if line.strip() == "- -c":
            indent = len(line) - len(line.lstrip())
            script = [lines[i + 1].strip().removeprefix("- ")]
            for more in lines[i + 2:]:
                if len(more) - len(more.lstrip()) <= indent:
                    break
                script.append(more.strip())
            scripts.append(" ".join(script))
    return scripts


# A user who is held to what files allow: root loses what lets it pass over that.
AS_NOBODY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def card(*configurations):
    """The card of (name, {split: path}, whether it is the default) each."""
    lines = ["---", "configs:"]
    for name, splits, default in configurations:
        lines += [f"- config_name: {name}"] + ["  default: true"] * default + ["  data_files:"]
        for split, path in splits.items():
            lines += [f"  - split: {split}", f"    path: {json.dumps(path)}"]
    return "\n".join(lines + ["---", ""])


class Folders(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        words = cls.folder / "words.txt"
        words.write_text("".join(f"row of {i}/train.jsonl, {i * i}\n" for i in range(2000)), encoding="utf-8")
        cls.done("corpus", "build", words, "--out", cls.folder / "tokenizer", "--train-tokenizer", 300)

    def setUp(self):
        self.base = self.folder / self._testMethodName
        self.base.mkdir()
        self.out = self.folder / (self._testMethodName + "-out")

    def write(self, *files, **texts):
        for name, text in {**{file: f"row of {file}" for file in files}, **texts}.items():
            path = self.base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"text": text}) + "\n" if ".json" in name else text, encoding="utf-8")

    def build(self, *options, inputs=None, prefix=()):
        """(what --json says, or {}; what is said besides)."""
        command = [*prefix, SLUICE, "corpus", "build", str(inputs or self.base), "--tokenizer", self.folder / "tokenizer", "--out",
                   self.out, "--json", *options]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertIn(result.returncode, (0, 2), result.stderr)
        return json.loads(result.stdout) if result.returncode == 0 else {}, result.stderr

    def rows(self, *options):
        """The files of which rows were read, or what refuses them."""
        told, said = self.build(*options)
        if not told:
            return said
        return [json.loads(call("corpus", "show", self.out / "corpus", i, "--json").stdout)["text"].removeprefix("row of ")
                for i in range(told["documents"])]

    def test_a_card_with_several_configurations(self):
        self.write("main/train.jsonl", "socratic/train.jsonl")
        (self.base / "README.md").write_text(card(("main", {"train": "main/train.jsonl"}, False),
                                                  ("socratic", {"train": "socratic/*"}, False)))
        self.assertRegex(self.rows(), "several configurations: choose from main, socratic with --subset")
        self.assertEqual(self.rows("--subset", "socratic"), ["socratic/train.jsonl"])
        self.assertRegex(self.rows("--subset", "other"), "no configuration 'other': choose from main, socratic")
        self.assertRegex(self.rows("--subset", "main", "--split", "test"), "no split 'test': choose from train")

    def test_a_card_with_a_default_and_splits_of_its_own(self):
        self.write("v1/a.jsonl", "v2/b.jsonl", "v2/c.jsonl", "raw/everything.jsonl")
        (self.base / "README.md").write_text(card(("v1", {"train": "v1/*"}, False),
                                                  ("v2", {"train": "v2/b.jsonl", "train_sft": ["v2/c*"]}, True)))
        self.assertEqual(self.rows(), ["v2/b.jsonl"])
        self.assertEqual(self.rows("--split", "train_sft"), ["v2/c.jsonl"])

    def test_names_tell_splits_and_what_belongs_to_none_is_named(self):
        self.write("data/train-00000-of-00001.jsonl", "data/test_x-00000-of-00001.jsonl", "raw/everything.jsonl")
        told, said = self.build()
        self.assertEqual(told["documents"], 1)
        self.assertEqual(told["passed_over"]["unsplit_files"], 1)
        self.assertIn("everything.jsonl", said)
        self.assertEqual(self.rows("--split", "test_x"), ["data/test_x-00000-of-00001.jsonl"])

    def test_a_choice_without_a_data_set_is_refused(self):
        self.write("a.txt")
        self.assertRegex(self.build("--subset", "main")[1], "no input is a folder of a data set, of which --subset main")

    def test_tables_of_comma_separated_values(self):
        self.write(**{"train.csv": 'id,text\n1,"row of a, or\nb"\n2,NA\n3,row of c\n'})
        self.assertEqual(self.rows(), ["a, or\nb", "c"])

    def test_lines_of_a_data_sets_texts_are_rows(self):
        self.write(**{"train.txt": "row of a\n\nrow of b\r\nrow of c"})
        (self.base / "README.md").write_text("---\ntask_categories:\n- text-generation\n---\n")
        self.assertEqual(self.rows(), ["a", "b", "c"])

    def test_links_are_followed(self):
        self.write("a.txt", "sub/b.txt")
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "c.txt").write_text("row of c")
        (self.base / "shelf").symlink_to(elsewhere)
        (self.base / "sub" / "up").symlink_to(self.base)
        (self.base / "self.txt").symlink_to("self.txt")
        (self.base / "gone.txt").symlink_to(self.folder / "nowhere.txt")
        told, said = self.build()
        self.assertEqual(told["documents"], 3)
        self.assertEqual((told["passed_over"]["dead_links"], told["passed_over"]["repeated_links"]), (2, 1))
        self.assertRegex(said, "links that lead nowhere: 2 .*gone.txt")

    def test_what_may_not_be_read_is_named(self):
        self.write("a.txt", "secret/b.txt")
        os.chmod(self.folder, 0o755)
        self.out.mkdir()
        self.out.chmod(0o777)
        (self.base / "secret").chmod(0)
        try:
            said = self.build(prefix=AS_NOBODY)[1]
        finally:
            (self.base / "secret").chmod(0o755)
        self.assertRegex(said, "cannot list folder .*secret: Permission denied: allow it, or pass it over with --exclude secret")
        (self.base / "secret" / "b.txt").chmod(0)
        self.assertRegex(self.build(prefix=AS_NOBODY)[1], "cannot read .*b.txt: Permission denied")

    def test_pipes_and_sockets(self):
        self.write("a.txt")
        os.mkfifo(self.base / "p.txt")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(os.path.relpath(self.base / "s.txt"))
            told, said = self.build()
        self.assertEqual((told["documents"], told["passed_over"]["special_files"]), (1, 2))
        self.assertIn("pipes, sockets and devices: 2", said)
        self.assertRegex(self.build(inputs=self.base / "p.txt")[1], "it is a pipe, a socket or a device: write what comes")

    def test_its_own_output_is_no_input(self):
        self.write("a.jsonl", "b.json")
        self.out = self.base / "corpus"
        first = self.build()[0]
        again = self.build()[0]
        self.assertEqual(first["documents"], 2)
        self.assertEqual(again["documents"], 2)
        self.assertGreaterEqual(again["passed_over"]["corpus_files"], 4)
        self.out = self.folder / "beside"
        self.assertEqual(self.build()[0]["documents"], 2)

    def test_rows_of_tables_are_conversations_and_bad_cells_are_left_out(self):
        python = pathlib.Path(os.environ.get("SLUICE_DEPS", pathlib.Path.home() / ".cache/sluice")) / "tools/bin/python"
        writer = ("import sys, pyarrow as pa, pyarrow.parquet as pq\n"
                  "bad = pa.array([b'good', b'\\xff', b'fine']).cast(pa.binary()).view(pa.string())\n"
                  "pq.write_table(pa.table({'text': bad}), sys.argv[1], write_page_checksum=True)\n")
        subprocess.run([python, "-c", writer, self.base / "train.parquet"], check=True)
        told, said = self.build()
        self.assertEqual((told["documents"], told["refused_documents"]), (2, 1))
        self.assertRegex(said, "train.parquet, row 1: not UTF-8")
        data = bytearray((self.base / "train.parquet").read_bytes())
        data[data.index(b"good")] ^= 1
        (self.base / "train.parquet").write_bytes(data)
        self.assertRegex(self.build()[1], "train.parquet: cannot be read as a table: .*CRC")


class Parts(CommandTest):
    """What one machine builds, and many."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        base = cls.folder / "in"
        base.mkdir()
        lines = [json.dumps({"text": f"document {i % 90} of many, {'word ' * (i % 90 % 37)}é"}) for i in range(300)]
        lines[100] = '{"text": 7}'
        lines[250] = "no JSON"
        (base / "a.jsonl").write_text("\n".join(lines[:200]) + "\n", encoding="utf-8")
        (base / "b.jsonl").write_text("\n".join(lines[200:]) + "\n", encoding="utf-8")
        (base / "c.txt").write_text("one text\n" * 50)
        cls.inputs = [base / name for name in ("a.jsonl", "b.jsonl", "c.txt")]
        words = cls.folder / "words.txt"
        words.write_text("".join(f"document {i} of many, word {i * i}\n" for i in range(2000)), encoding="utf-8")
        cls.done("corpus", "build", words, "--out", cls.folder / "t", "--train-tokenizer", 300)

    def build(self, out, *options, ok=True):
        result = call("corpus", "build", *self.inputs, "--tokenizer", self.folder / "t", "--out", self.folder / out, "--json",
                      *options)
        self.assertEqual(result.returncode, 0 if ok else 2, result.stderr)
        return json.loads(result.stdout) if ok else result.stderr

    def merged(self, name, count, *options, order=1):
        parts = []
        for part in range(1, count + 1):
            self.build(f"{name}-{part}", "--part", f"{part}/{count}", *options)
            parts.append(self.folder / f"{name}-{part}" / "corpus")
        return json.loads(self.done("corpus", "merge", *parts[::order], "--out", self.folder / name, "--json"))

    def files(self, out):
        return {path.name: path.read_bytes() for path in (self.folder / out).iterdir()}

    def test_parts_merge_to_the_bytes_of_one_build(self):
        for kind, options in (("plain", []), ("dedup", ["--dedup", "exact"])):
            whole = self.build(kind, *options)
            for count in (1, 3, 16):
                told = self.merged(f"{kind}-of-{count}", count, *options, order=-1 if count == 3 else 1)
                self.assertEqual(self.files(f"{kind}-of-{count}"), self.files(kind), (kind, count))
                if count > 1:
                    for key in ("documents", "tokens", "bytes_per_token", "loss_tokens", "over_context", "duplicates", "sources"):
                        self.assertEqual(told[key], whole[key], (kind, count, key))
        self.assertEqual(whole["duplicates"], 299 - 91)
        self.assertEqual(whole["documents"], 91)

    def test_parts_share_the_work(self):
        documents = [self.build(f"share-{part}", "--part", f"{part}/3")["documents"] for part in (1, 2, 3)]
        self.assertEqual(sum(documents), 299)
        self.assertGreater(min(documents), 50)

    def test_missing_and_foreign_parts_are_named(self):
        for part in (1, 3, 4):
            self.build(f"some-{part}", "--part", f"{part}/5")
        prefixes = [self.folder / f"some-{part}" / "corpus" for part in (1, 3, 4)]
        wrong = call("corpus", "merge", *prefixes, "--out", self.folder / "some")
        self.assertEqual(wrong.returncode, 2)
        self.assertRegex(wrong.stderr, "of 5 parts some are missing: 2/5, 5/5")
        wrong = call("corpus", "merge", prefixes[0], prefixes[0], "--out", self.folder / "some")
        self.assertRegex(wrong.stderr, "part 1/5 is there twice")
        self.build("foreign", "--part", "2/5", "--delimiter", "x")
        wrong = call("corpus", "merge", *prefixes, self.folder / "foreign/corpus", "--out", self.folder / "some")
        self.assertRegex(wrong.stderr, "are not of one build")

    def run_example(self, *command, **variables):
        """In the folder, with the program on the PATH."""
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        if not (programs / "sluice").exists():
            (programs / "sluice").symlink_to(os.path.abspath(SLUICE))
        done = subprocess.run(list(map(str, command)), cwd=self.folder, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **variables})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_examples_build_what_one_machine_does(self):
        source = self.folder / "in"
        def check(out):
            found = {name: data for name, data in self.files(out).items() if name != "lengths.json"}
            self.assertEqual({name: found.get(name) for name in whole}, whole, out)

        data = self.folder / "data"
        data.mkdir()
        for path in sorted(source.glob("*.jsonl")):
            shutil.copy(path, data)
        self.done("corpus", "build", data, "--tokenizer", self.folder / "t", "--out", self.folder / "one")
        whole = {name: found for name, found in self.files("one").items() if name != "lengths.json"}
        for part in (1, 2, 3):
            self.run_example("bash", EXAMPLES / "build.sbatch", "build", data, self.folder / "t", "by-slurm", PARTS="3",
                             SLURM_ARRAY_TASK_ID=str(part), SLURM_CPUS_PER_TASK="1")
        self.run_example("bash", EXAMPLES / "build.sbatch", "merge", "by-slurm")
        shutil.rmtree(self.folder / "by-slurm/parts")
        check("by-slurm")

        shutil.copytree(self.folder / "t", self.folder / "tokenizer")
        build, merge = commands_of(EXAMPLES / "build.kubernetes.yaml")
        for part in range(16):
            self.run_example("bash", "-c", build.replace("s3://bucket/text/", str(data)), JOB_COMPLETION_INDEX=str(part))
        self.run_example("bash", "-c", merge)
        shutil.rmtree(self.folder / "web/parts")
        check("web")

        (self.folder / "ray.py").write_text(RAY)
        self.run_example(sys.executable, EXAMPLES / "build_ray.py", data, "--tokenizer", self.folder / "t", "--out", "by-ray", "--parts", 3,
                         "--cores", 1, PYTHONPATH=str(self.folder))
        shutil.rmtree(self.folder / "by-ray/parts")
        check("by-ray")

    def test_part_is_checked(self):
        for part in ("0/3", "4/3", "x", "1", "1/0"):
            self.assertRegex(self.build("wrong", "--part", part, ok=False), f"--part is '{part}': give I/N")

    def test_counts_that_people_plan_by(self):
        told = self.build("counted", "--dedup", "exact")
        said = json.loads((self.folder / "counted/lengths.json").read_text())
        for key in ("bytes_per_token", "loss_tokens", "over_context", "duplicates", "sources"):
            self.assertEqual(told[key], said[key])
        self.assertEqual(told["loss_tokens"], told["tokens"] - told["documents"])
        self.assertAlmostEqual(told["bytes_per_token"], told["bytes"] / told["tokens"])
        self.assertEqual([source["documents"] for source in told["sources"]], [90, 0, 1])
        self.assertEqual(told["over_context"][-1]["documents"], 0)


if __name__ == "__main__":
    unittest.main()
