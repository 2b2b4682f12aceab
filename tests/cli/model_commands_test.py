"""export, import, eval, plan and inspect on a model that a short run made."""

import json
import pathlib
import re
import shutil
import struct
import subprocess
import time
import unittest

from commands import SLUICE, CommandTest, call
from small_models import run_configuration

SHAPE = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 48}
VOCABULARY = 384


def configuration(folder, steps=2):
    return run_configuration({**SHAPE, "vocab": VOCABULARY}, folder / "corpus/corpus", folder / "run", train__steps=steps)


class ModelCommands(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = cls.folder / "run.toml"
        cls.config.write_text(configuration(cls.folder))
        text = cls.folder / "text"
        text.mkdir()
        source = pathlib.Path(json.__file__).parent
        for path in source.glob("*.py"):
            (text / path.name).write_bytes(path.read_bytes())
        cls.done("corpus", "build", text, "--out", cls.folder / "corpus", "--delimiter", "\\n\\n\\n",
                 "--train-tokenizer", VOCABULARY)
        cls.done("train", "--config", cls.config)
        cls.done("export", cls.folder / "run", "--out", cls.folder / "model")

    def test_a_run_shows_what_it_says(self):
        for prompts, told in (('["import "]', r": sample  import  \| "), ("[]", r": sample  .+ \| ")):
            result = call("train", "--config", self.config, "--nproc", 2, "--set", "parallel.strategies=[\"<1,1,1>\"]",
                          "--set", "train.sample_every=1", "--set", f"train.sample_prompts={prompts}", "--set",
                          f'log.dir="{self.folder}/says{len(prompts)}"')
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stderr, told)

    def test_the_closing_lines_name_commands_that_work(self):
        """Whichever way the corpus is named, the model has its tokenizer."""
        for name, told in (("folder", "corpus"), ("prefix", "corpus/corpus")):
            with self.subTest(name):
                run = self.folder / f"closing_{name}"
                result = call("train", "--config", self.config, "--set", f'data.train="{self.folder / told}"', "--set", f'log.dir="{run}"')
                self.assertEqual(result.returncode, 0, result.stderr)
                line = re.search(r"try it +sluice (generate .*) TEXT", result.stderr)[1]
                self.assertIn("import", self.done(*line.split(), "import", "--tokens", 2))
                line = re.search(r"export it +sluice (export .*) FOLDER", result.stderr)[1]
                self.done(*line.split(), self.folder / f"closed_{name}")
                self.assertTrue((self.folder / f"closed_{name}" / "tokenizer.model").exists())

    def test_what_a_run_says_may_be_longer_than_its_documents(self):
        short = self.folder / "short.txt"
        short.write_text("\n\n\n".join(["import"] * 400))
        self.done("corpus", "build", short, "--out", self.folder / "short", "--delimiter", "\n\n\n", "--tokenizer",
                  self.folder / "corpus")
        result = call("train", "--config", self.config, "--set", f'data.train=[["{self.folder}/short/corpus", 1.0]]', "--set",
                      "train.sample_every=1", "--set", f'log.dir="{self.folder}/says_more"')
        self.assertEqual(result.returncode, 0, result.stderr)

    def eval(self, model, *arguments):
        corpus = self.folder / "corpus" / "corpus"
        return json.loads(self.done("eval", "--model", model, "--corpus", corpus, "--context-length", 128,
                                    "--threads", 1, "--json", *arguments))

    def test_weights_survive_the_way_out_and_back(self):
        self.done("export", self.folder / "run" / "checkpoints" / "step-2", "--out", self.folder / "shards",
                  "--max-shard-bytes", 20_000)
        self.assertGreater(len(list((self.folder / "shards").glob("model-*.safetensors"))), 1)
        self.done("import", self.folder / "shards", "--out", self.folder / "imported")
        self.done("export", self.folder / "imported", "--out", self.folder / "again", "--max-positions", 128)
        for name in ("config.json", "model.safetensors"):
            with self.subTest(name):
                self.assertEqual((self.folder / "model" / name).read_bytes(),
                                 (self.folder / "again" / name).read_bytes())

    def test_ranks_that_share_batches_find_the_same_loss(self):
        alone = self.eval(self.folder / "model")
        for strategy in ([], ["--strategy", "<2,1,1>"]):
            together = self.eval(self.folder / "model", "--nproc", 2, *strategy)
            self.assertEqual((together["targets"], together["sequences"]), (alone["targets"], alone["sequences"]))
            self.assertAlmostEqual(together["loss"], alone["loss"], delta=1e-5)
        refused = call("eval", "--model", self.folder / "model", "--corpus", self.folder / "corpus/corpus", "--nproc", 2,
                       "--logits", self.folder / "no.safetensors")
        self.assertEqual(refused.returncode, 2, refused.stderr)

    def test_generation_takes_the_likeliest_tokens(self):
        def generate(tokens):
            return json.loads(self.done("generate", "--model", self.folder / "run", "--tokenizer", self.folder / "corpus",
                                        "--prompt", "def main():", "--tokens", tokens, "--threads", 1, "--json"))
        said = generate(4)
        self.assertEqual(said["ids"][:2], generate(2)["ids"])
        (self.folder / "prompt.txt").write_text("def main():")
        self.done("corpus", "build", self.folder / "prompt.txt", "--out", self.folder / "prompt", "--tokenizer",
                  self.folder / "corpus")
        logits = self.folder / "logits.safetensors"
        self.done("eval", "--model", self.folder / "run", "--corpus", self.folder / "prompt/corpus", "--logits", logits,
                  "--threads", 1)
        content = logits.read_bytes()
        size, = struct.unpack("<Q", content[:8])
        rows, vocabulary = json.loads(content[8:8 + size])["logits.0"]["shape"]
        values = struct.unpack(f"<{rows * vocabulary}f", content[8 + size:])
        last = values[(said["prompt_tokens"] - 1) * vocabulary:said["prompt_tokens"] * vocabulary]
        self.assertEqual(said["ids"][0], last.index(max(last)))

    def write_prompts(self, prompts):
        path = self.folder / "prompts.jsonl"
        path.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
        return path

    def generated(self, name, prompts, *arguments):
        out = self.folder / name
        self.done("generate", "--model", self.folder / "run", "--tokenizer", self.folder / "corpus", "--prompts",
                  self.write_prompts(prompts), "--out", out, "--dtype", "float64", *(arguments if "--tokens" in arguments else ("--tokens", 12, *arguments)))
        return [json.loads(line) for line in out.read_text().splitlines()]

    PROMPTS = [{"prompt": "def main():"}, {"ids": [5, 7, 9]}, {"prompt": "import json\n" * 20}, {"prompt": "class"}]
    DRAWN = ("--temperature", 0.9, "--top-p", 0.95, "--samples", 2, "--seed", 3)

    def test_what_is_said_knows_neither_ranks_nor_cache_nor_company(self):
        alone = self.generated("alone.jsonl", self.PROMPTS, *self.DRAWN, "--threads", 1)
        self.assertEqual([(line["index"], line["sample"]) for line in alone], [(i, s) for i in range(4) for s in range(2)])
        for name, arguments in {"ranks": ("--nproc", 3), "tight": ("--kv-cache-gib", 1.3e-4), "one": ("--max-num-seqs", 1),
                                "tensor": ("--nproc", 2, "--strategy", "<2,1,1>"),
                                "stages": ("--nproc", 3, "--strategy", "<1,2,1> + <1,1,1>"),
                                "both": ("--nproc", 4, "--strategy", "<2,2,1>"),
                                "lanes": ("--nproc", 3, "--strategy", "<1,1,3>"),
                                "lanes of both": ("--nproc", 5, "--strategy", "<2,1,2> + <1,1,1>"),
                                "lanes with little": ("--nproc", 4, "--strategy", "<1,1,4>", "--kv-cache-gib", 4e-5)}.items():
            with self.subTest(name):
                other = self.generated(f"{name}.jsonl", self.PROMPTS, *self.DRAWN, *arguments)
                for ours, theirs in zip(alone, other, strict=True):
                    self.assertEqual(ours["ids"], theirs["ids"])
                    for own, other_one in zip(ours["logprobs"], theirs["logprobs"], strict=True):
                        self.assertAlmostEqual(own, other_one, delta=1e-11)
                self.assertEqual(list(self.folder.glob(f"{name}.jsonl.part-*")), [])
        # A prompt is answered as it is alone, by --prompt too.
        for ranks in ((), ("--nproc", 2, "--strategy", "<1,2,1>")):
            single = json.loads(self.done("generate", "--model", self.folder / "run", "--tokenizer", self.folder / "corpus",
                                          "--prompt", "def main():", "--tokens", 12, "--dtype", "float64", "--json", *ranks,
                                          *self.DRAWN[:-3], 1, *self.DRAWN[-2:]))
            self.assertEqual(single["ids"], alone[0]["ids"])

    def test_a_generation_that_was_ended_says_the_rest(self):
        long = ("--tokens", 400, "--max-num-seqs", 1, "--threads", 1)
        whole = self.generated("whole.jsonl", self.PROMPTS, *long)
        command = ["generate", "--model", self.folder / "run", "--tokenizer", self.folder / "corpus", "--prompts",
                   self.write_prompts(self.PROMPTS), "--out", self.folder / "rest.jsonl", "--dtype", "float64", *long]
        part = self.folder / "rest.jsonl.part-0"
        process = subprocess.Popen([SLUICE, *map(str, command)], stderr=subprocess.DEVNULL)
        while process.poll() is None and not (part.exists() and '"texts"' in part.read_text()):
            time.sleep(0.01)
        process.kill()
        process.wait()
        if part.exists():  # else it was done before it could be ended
            other = call("generate", "--model", self.folder / "run", "--tokenizer", self.folder / "corpus", "--prompts",
                         self.folder / "prompts.jsonl", "--out", self.folder / "rest.jsonl", "--tokens", 13)
            self.assertEqual(other.returncode, 2)
            self.assertIn("is of another model, other prompts or options: remove it", other.stderr)
            with part.open("a") as file:
                file.write('{"texts": [{"index": 3, "id')  # as a machine that went off leaves it
            self.done(*command)
        rest = [json.loads(line) for line in (self.folder / "rest.jsonl").read_text().splitlines()]
        for ours, theirs in zip(rest, whole, strict=True):
            logprobs = zip(ours.pop("logprobs"), theirs.pop("logprobs"), strict=True)
            self.assertEqual(ours, theirs)
            self.assertLess(max(abs(one - other) for one, other in logprobs), 1e-11)
        self.assertFalse(part.exists())

    def test_passes_are_predicted(self):
        done = call("generate", "--model", self.folder / "run", "--tokenizer", self.folder / "corpus", "--prompt", "def",
                    "--tokens", 8, "--threads", 1, "--predict")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "generated 8 tokens in 1 sequence, .* 8 engine steps, which should take .* and took ")

    def test_what_cannot_be_generated_is_refused_with_a_way_out(self):
        def refused(*arguments):
            done = call("generate", "--model", self.folder / "run", "--tokenizer", self.folder / "corpus", *arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            return done.stderr
        prompts = self.write_prompts([{"prompt": "a" * 4000}])
        out = ("--out", self.folder / "refused.jsonl")
        self.assertIn("give one of the two", refused())
        self.assertIn("name it with --out", refused("--prompts", prompts))
        self.assertIn("give the cache more memory", refused("--prompts", prompts, *out, "--kv-cache-gib", 1e-5))
        self.assertIn("top_p", refused("--prompt", "a", "--top-p", 0))
        for strategy, told in {"<1,1,2,2>": "which share parameters", "<1,1,1>": "give pipelines for all of them",
                               "2x<1,1,1>": "give a file of --prompts", "<1,40,1>": "start more ranks", "1x": "--strategy: "}.items():
            self.assertIn(told, refused("--prompt", "a", "--nproc", 2, "--strategy", strategy))
        self.assertIn("is not there: make it", refused("--prompts", prompts, "--out", self.folder / "none" / "said.jsonl"))
        bad = self.folder / "bad.jsonl"
        bad.write_text('{"prompt": "a"}\n{"text": "b"}\n')
        self.assertIn("bad.jsonl:2 is no prompt", refused("--prompts", bad, *out))
        bad.write_text(json.dumps({"ids": [VOCABULARY]}) + "\n")
        self.assertIn(f"bad.jsonl:1 has token {VOCABULARY}", refused("--prompts", bad, *out))

    def test_training_starts_from_an_imported_model(self):
        self.done("import", self.folder / "model", "--out", self.folder / "start")
        self.done("train", "--config", self.config, "--resume", self.folder / "start",
                  "--set", f"log.dir={self.folder}/continued")
        first = json.loads((self.folder / "run" / "metrics.jsonl").read_text().splitlines()[0])
        continued = json.loads((self.folder / "continued" / "metrics.jsonl").read_text().splitlines()[0])
        self.assertEqual((continued["step"], continued["tokens"]), (0, first["tokens"]))
        self.assertLess(continued["loss"], first["loss"])

    def test_what_goes_with_a_model_travels_through_training(self):
        source = self.folder / "with_tokenizer"
        shutil.copytree(self.folder / "model", source)
        config = json.loads((source / "config.json").read_text())
        config |= {"bos_token_id": 1, "eos_token_id": [2, 7], "max_position_embeddings": 4096}
        (source / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        names = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")
        # Else the token that ends the corpus's documents would be added to the model's ends.
        end = json.loads((self.folder / "corpus/lengths.json").read_text())["end_id"]
        for name in names:
            (source / name).write_text(json.dumps({"of": name, "eos_token_id": [end, 7]}, indent=3))
        self.done("import", source, "--out", self.folder / "companions")
        self.done("train", "--config", self.config, "--resume", self.folder / "companions",
                  "--set", f"log.dir={self.folder}/kept")
        self.done("export", self.folder / "kept", "--out", self.folder / "trained")
        for name in (*names, "config.json"):
            with self.subTest(name):
                self.assertEqual((self.folder / "trained" / name).read_bytes(), (source / name).read_bytes())

    def test_weights_that_are_not_finite_are_refused(self):
        folder = self.folder / "not_finite"
        shutil.copytree(self.folder / "model", folder)
        weights = bytearray((folder / "model.safetensors").read_bytes())
        weights[-4:] = b"\x00\x00\xc0\x7f"  # a float32 NaN
        (folder / "model.safetensors").write_bytes(weights)
        corpus = self.folder / "corpus" / "corpus"
        for arguments in (("import", folder, "--out", self.folder / "refused"),
                          ("eval", "--model", folder, "--corpus", corpus)):
            with self.subTest(arguments[0]):
                result = call(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertIn("' holds nan", result.stderr)

    def test_folder_and_checkpoint_have_one_loss_however_batched(self):
        checkpoint = self.eval(self.folder / "run")
        folder = self.eval(self.folder / "model", "--tokens-per-batch", 300)
        self.assertEqual(checkpoint["targets"], folder["targets"])
        self.assertAlmostEqual(checkpoint["loss"], folder["loss"], delta=1e-6 * checkpoint["loss"])

    def test_losses_of_sequences_sum_to_the_whole(self):
        path = self.folder / "losses.jsonl"
        whole = self.eval(self.folder / "model", "--losses", path)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual(sum(line["targets"] for line in lines), whole["targets"])
        self.assertEqual(len(lines), whole["sequences"])
        self.assertTrue(all(line["targets"] == line["length"] - 1 for line in lines))
        self.assertAlmostEqual(sum(line["loss_sum"] for line in lines) / whole["targets"], whole["loss"])

    def test_a_plan_names_the_batch_that_the_run_used(self):
        plan = json.loads(self.done("plan", "--config", self.config, "--step", 1, "--json"))
        step = json.loads((self.folder / "run" / "metrics.jsonl").read_text().splitlines()[1])
        self.assertEqual(sum(sequence["length"] for sequence in plan["sequences"]), step["tokens"])
        self.assertEqual(len(plan["sequences"]), step["sequences"])

    def test_inspect_knows_what_the_others_wrote(self):
        self.done("plan", "--config", self.config, "--out", self.folder / "plan.json")
        self.eval(self.folder / "model", "--sequences", 3, "--logits", self.folder / "logits.safetensors")
        for name in ("run.toml", "run", "run/metrics.jsonl", "run/calibration.json", "run/rank-0.log",
                     "run/checkpoints/step-2", "run/checkpoints/step-2/manifest.json", "model",
                     "model/config.json", "model/model.safetensors", "plan.json", "logits.safetensors",
                     "corpus", "corpus/corpus", "corpus/corpus.idx", "corpus/lengths.json",
                     "corpus/tokenizer.model"):
            with self.subTest(name):
                self.assertNotEqual(self.done("inspect", self.folder / name), "")

    def test_wrong_input_ends_with_2_and_one_line(self):
        (self.folder / "unknown.json").write_text("{}")
        corpus = self.folder / "corpus" / "corpus"
        for arguments in (("inspect", self.folder / "unknown.json"),
                          ("inspect", self.folder / "absent"),
                          ("export", self.folder / "corpus", "--out", self.folder / "none"),
                          ("export", self.folder / "run", "--out", self.folder / "model"),
                          ("import", self.folder / "corpus", "--out", self.folder / "none"),
                          ("eval", "--model", self.folder / "absent", "--corpus", corpus),
                          ("plan", "--config", self.config, "--set", "parallel.strategies=auto")):
            with self.subTest(arguments[0]):
                result = call(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(len([line for line in result.stderr.splitlines() if "[info]" not in line]), 1)
        self.assertFalse((self.folder / "none").exists())

    def test_a_lone_rank_says_whose_its_errors_are(self):
        for arguments, fault in ((("--set", "steps"), r"\[config\] --set steps: expected section.key=value"),
                                 (("--join",), "no run that can be joined is under way")):
            with self.subTest(fault):
                result = call("train", "--config", self.config, *arguments)
                self.assertEqual(result.returncode, 2)
                self.assertRegex(result.stderr, f"^sluice: {fault}.*\n$")


if __name__ == "__main__":
    unittest.main()
