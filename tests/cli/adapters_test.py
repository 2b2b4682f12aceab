"""Several adapters beside one model in generate and serve: each answers as its merged model does, in one engine with the others;
and adapters that do not belong to the model are refused."""

import concurrent.futures
import json
import math
import pathlib
import shutil
import struct
import unittest

from commands import CommandTest, call
from serve_test import Server
from small_models import byte_tokenizer, run_configuration

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "data" / "parity"
TARGETS = {"attention": ["q_proj", "o_proj"], "experts": ["v_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
           "down": ["mlp.experts.down_proj"], "own": ["q_proj:3:7.5", "k_proj:1:2", "o_proj"]}
PROMPTS = [[5, 9, 2], [7], [1, 2, 3, 4, 5, 6, 7, 8], [90, 3, 60], [11, 12]]
TOKENS = 12


def rewritten(folder, out, change):
    """A copy of an adapter whose file's header `change` has changed."""
    shutil.copytree(folder, out)
    path = out / "adapter_model.safetensors"
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = change(json.loads(data[8:8 + size]))
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size:])
    return out


def configured(folder, out, **changes):
    """A copy of an adapter with other keys in its configuration."""
    shutil.copytree(folder, out)
    path = out / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return out


def written(folder, rank, rows, columns):
    """An adapter of one matrix, all zeros."""
    folder.mkdir()
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    shapes = {f"{module}.lora_A.weight": [rank, columns], f"{module}.lora_B.weight": [rows, rank]}
    header, begin = {}, 0
    for name, shape in shapes.items():
        end = begin + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(begin))
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj"]}))
    return folder


class Adapters(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.folder / "model"
        cls.model.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copy(FIXTURES / "qwen3_moe" / name, cls.model)
        cls.adapters, cls.merged = {}, {}
        for rank, (name, targets) in enumerate(TARGETS.items(), start=2):
            config = cls.folder / f"{name}.toml"
            config.write_text(run_configuration(
                {"hf": str(cls.model)}, FIXTURES / "qwen3_moe/corpus", cls.folder / name, data__context_length=96, train__steps=6,
                checkpoint__every=6, optimizer__lr=0.02, optimizer__warmup_steps=0,
                lora__rank=rank, lora__alpha=8.0 * rank, lora__targets=targets,
                lora__use_rslora=name == "own"))
            cls.done("train", "--config", config)
            cls.adapters[name] = cls.folder / f"{name}-adapter"
            cls.merged[name] = cls.folder / f"{name}-merged"
            cls.done("export", cls.folder / name, "--out", cls.adapters[name], "--adapters")
            cls.done("export", cls.folder / name, "--out", cls.merged[name], "--no-check")

    def modules(self, *names):
        return ["--adapter", *(f"{name}={self.adapters[name]}" for name in names or TARGETS)]

    def ids(self, model, prompts, *arguments):
        return [line["ids"] for line in self.said(model, prompts, *arguments)]

    def said(self, model, prompts, *arguments):
        lines = self.folder / "prompts.jsonl"
        lines.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
        out = self.folder / "said.jsonl"
        out.unlink(missing_ok=True)
        self.done("generate", "--model", model, "--prompts", lines, "--out", out, "--tokens", TOKENS, "--dtype", "float64", *arguments)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def expect_close(self, said, expected, apart):
        self.assertEqual([line["ids"] for line in said], [line["ids"] for line in expected])
        for ours, theirs in zip(said, expected):
            for one, other in zip(ours["logprobs"], theirs["logprobs"]):
                self.assertAlmostEqual(one, other, delta=apart)

    def test_each_answers_as_its_merged_model(self):
        plain = [{"ids": ids} for ids in PROMPTS]
        expected = {name: self.ids(folder, plain) for name, folder in self.merged.items()} | {"": self.ids(self.model, plain)}
        self.assertEqual(len({json.dumps(each) for each in expected.values()}), len(TARGETS) + 1, "the adapters change nothing")
        asked = [prompt | {"model": name} for prompt in plain for name in expected]
        wanted = [expected[name][i] for i in range(len(PROMPTS)) for name in expected]
        alone = self.said(self.model, asked, *self.modules())
        self.assertEqual([line["ids"] for line in alone], wanted)
        own = json.loads((self.adapters["own"] / "adapter_config.json").read_text())
        self.assertEqual(own["rank_pattern"], {"q_proj": 3, "k_proj": 1})
        self.assertAlmostEqual(own["alpha_pattern"]["q_proj"] / 3, 7.5 / 3 ** 0.5)
        self.assertAlmostEqual(own["lora_alpha"] / own["r"], 8 * own["r"] / own["r"] ** 0.5)
        one = [prompt | {"model": "down"} for prompt in plain] + plain
        self.assertEqual(self.ids(self.model, one, *self.modules("down")), expected["down"] + expected[""])
        for strategy in ("<2,1,1>", "<1,2,1>", "<1,1,2>"):
            with self.subTest(strategy):
                self.expect_close(self.said(self.model, asked, *self.modules(), "--nproc", 2, "--strategy", strategy), alone, 1e-11)

    def test_factors_and_ranks_by_pattern(self):
        own, prompts = self.adapters["attention"], [{"ids": ids, "model": "a"} for ids in PROMPTS]
        expected = self.said(self.model, prompts, "--adapter", f"a={own}")
        told = json.loads((own / "adapter_config.json").read_text())
        rank, alpha = told["r"], told["lora_alpha"]
        same = {"rslora": dict(use_rslora=True, lora_alpha=alpha / rank ** 0.5),
                "alphas": dict(lora_alpha=1, alpha_pattern={"q_proj": alpha, r".*\.o_proj": alpha, "proj": 7}),
                "ranks": dict(r=7, lora_alpha=1, rank_pattern={r"^model\.layers\.\d+\.self_attn\.[qo]_proj": rank, "o_proj": 5},
                              alpha_pattern={"[qo]_proj": alpha}),
                "stabilised ranks": dict(r=7, use_rslora=True, lora_alpha=alpha / rank ** 0.5, rank_pattern={"[qo]_proj": rank})}
        for name, changes in same.items():
            with self.subTest(name):
                self.expect_close(self.said(self.model, prompts, "--adapter", f"a={configured(own, self.folder / name, **changes)}"),
                                  expected, 1e-6)
        others = self.said(self.model, prompts, "--adapter", f"a={configured(own, self.folder / 'other', use_rslora=True)}")
        self.assertNotEqual([line["logprobs"] for line in others], [line["logprobs"] for line in expected])

    def test_one_prompt_names_its_adapter(self):
        byte_tokenizer(self.folder / "bytes")
        ask = ["generate", "--model", self.model, "--prompt", "ab", "--tokens", 4, "--tokenizer", self.folder / "bytes", *self.modules()]
        answers = {name: json.loads(self.done(*ask, "--json", *(["--adapter-name", name] if name else [])))["ids"] for name in ("", *TARGETS)}
        self.assertEqual(len({json.dumps(ids) for ids in answers.values()}), len(answers))
        result = call(*ask, "--adapter-name", "none")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("is for the model 'none', which --adapter does not have", result.stderr)

    def test_what_does_not_belong_is_refused(self):
        prompts = self.folder / "one.jsonl"
        prompts.write_text('{"ids": [1], "model": "other"}\n')

        def refusal(*modules, lines=prompts):
            result = call("generate", "--model", self.model, "--prompts", lines, "--out", self.folder / "none.jsonl", "--lora-modules", *modules)
            self.assertEqual(result.returncode, 2, result.stderr)
            return result.stderr
        own = self.adapters["attention"]
        self.assertIn("is for the model 'other', which --adapter does not have: it has a", refusal(f"a={own}"))
        self.assertIn("give NAME=FOLDER", refusal(str(own)))
        self.assertIn("names 'a' twice", refusal(f"a={own}", f"a={own}"))

        def wider(header):
            for info in header.values():
                if info.get("shape", [0])[-1] == 32:
                    info["shape"] = [info["shape"][0] // 2, 64]
            return header
        self.assertIn("the adapter belongs to another base", refusal(f"a={rewritten(own, self.folder / 'wider', wider)}"))
        named = rewritten(own, self.folder / "named", lambda header: {name.replace("q_proj", "qq_proj"): info for name, info in header.items()})
        self.assertIn("'qq_proj', which no layer has", refusal(f"a={named}"))
        deep = rewritten(own, self.folder / "deep", lambda header: {name.replace("layers.2.", "layers.7."): info for name, info in header.items()})
        self.assertIn("adapts what the model does not have", refusal(f"a={deep}"))
        refused = {"bias": "all", "modules_to_save": ["lm_head"], "layer_replication": [[0, 2], [1, 3]],
                   "peft_type": "LOHA", "a_key_of_later": 3}
        for key, value in refused.items():
            self.assertIn(f"{key} is {json.dumps(value, separators=(',', ':'))}, which Sluice does not compute",
                          refusal(f"a={configured(own, self.folder / key, **{key: value})}"))
        wrong = {"pissa": (dict(init_lora_weights="pissa"), "init_lora_weights is \"pissa\", which changes the base model"),
                 "regex": (dict(rank_pattern={"q_(proj": 2}), "rank_pattern has 'q_(proj', which is no regular expression"),
                 "zero": (dict(rank_pattern={"q_proj": 0}), "rank_pattern: "),
                 "less": (dict(rank_pattern={"q_proj": 1}), "the model asks for"),
                 "alpha": (dict(lora_alpha="much"), "lora_alpha")}
        for name, (changes, told) in wrong.items():
            self.assertIn(told, refusal(f"a={configured(own, self.folder / name, **changes)}"))
        self.assertIn("has rank 40, above the rank of its matrix, 32 x 64", refusal(f"a={written(self.folder / 'wide', 40, 64, 32)}"))
        self.assertIn("lora_magnitude_vector' is missing beside", refusal(f"a={configured(own, self.folder / 'no_magnitudes', use_dora=True)}"))
        self.assertIn("there is no", refusal(f"a={self.model}"))
        self.assertIn("not JSON", refusal("{a"))
        self.assertIn("is for the model 'other', which --adapter does not have: it has b",
                      refusal(json.dumps({"name": "b", "path": str(own), "base_model_name": "base"})))

    def test_magnitudes(self):
        """DoRA: the run's checkpoint, its merged model and its adapter beside the model say the same; other rows keep the model's."""
        config, adapter, merged = (self.folder / f"dora{end}" for end in (".toml", "-adapter", "-merged"))
        config.write_text(run_configuration(
            {"hf": str(self.model)}, FIXTURES / "qwen3_moe/corpus", self.folder / "dora", data__context_length=96, train__steps=6,
            checkpoint__every=6, optimizer__lr=0.02, optimizer__warmup_steps=0, lora__rank=3, lora__alpha=12.0,
            lora__targets=["q_proj", "v_proj", "o_proj"], lora__dora=True))
        self.done("train", "--config", config)
        self.done("export", self.folder / "dora", "--out", adapter, "--adapters")
        self.done("export", self.folder / "dora", "--out", merged)
        plain = [{"ids": ids} for ids in PROMPTS]
        expected, base = self.said(merged, plain), self.said(self.model, plain)
        self.assertNotEqual([line["ids"] for line in expected], [line["ids"] for line in base])
        self.expect_close(self.said(self.folder / "dora", plain), expected, 1e-5)
        asked = [prompt | {"model": "d"} for prompt in plain] + plain
        for strategy in ("<1,1,1>", "<2,1,1>"):
            said = self.said(self.model, asked, "--adapter", f"d={adapter}", "--nproc", 2 if strategy == "<2,1,1>" else 1, "--strategy", strategy)
            self.expect_close(said, expected + base, 1e-5)
        for beside, told in ((self.adapters["attention"], "is DoRA's, and one of several: give it alone"),):
            result = call("generate", "--model", self.model, "--prompts", self.folder / "prompts.jsonl", "--out", self.folder / "none.jsonl",
                          "--adapter", f"d={adapter}", f"a={beside}")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(told, result.stderr)

    def test_evaluations_try_others(self):
        """Beside the trained adapter's, each other one's loss is that of the model that has it merged, whatever strategy evaluates."""
        corpus = FIXTURES / "qwen3_moe/corpus"
        others = [f"{name}={self.adapters[name]}" for name in ("attention", "experts", "own")]

        def run(name, steps=2, **changes):
            told = {"data__context_length": 96, "data__validation": [str(corpus)], "train__steps": steps, "train__eval_every": 1,
                    "train__eval_adapters": others, "optimizer__lr": 0.02, "lora__rank": 6, "lora__alpha": 3.0,
                    "lora__targets": ["q_proj", "k_proj", "v_proj", "o_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}
            config = self.folder / f"{name}.toml"
            config.write_text(run_configuration({"hf": str(self.model)}, corpus, self.folder / name, **told | changes))
            return ["train", "--config", config]
        merged = {name: json.loads(self.done("eval", "--model", self.merged[name], "--corpus", corpus, "--context-length", 96, "--json"))["loss"]
                  for name in ("attention", "experts", "own")}
        runs = {"trying": {}, "in parts": {"parallel__strategies": ["<2,1,1>"]}, "without": {"train__eval_adapters": []}}
        lines = {}
        for name, changes in runs.items():
            self.done(*run(name, **changes), "--nproc", 2 if name == "in parts" else 1)
            text = (self.folder / name / "metrics.jsonl").read_text()
            lines[name] = [json.loads(line) for line in text.splitlines() if "validation_loss" in line]
        own = {name: [line["validation_loss"] for line in of if "adapter" not in line] for name, of in lines.items()}
        self.assertEqual(own["trying"], own["without"])  # trained as if nothing else had been in place
        self.assertEqual(len(own["trying"]), 2)
        self.assertNotEqual(*own["trying"])
        for name in ("trying", "in parts"):
            tried = [line for line in lines[name] if "adapter" in line]
            self.assertEqual([line["adapter"] for line in tried], ["attention", "experts", "own"] * 2)
            for line in tried:
                self.assertAlmostEqual(line["validation_loss"], merged[line["adapter"]], delta=1e-5)
                self.assertEqual(line["set"], f"adapter {line['adapter']}")
        for changes, told in (({"lora__rank": 1}, "above the run's 1: set lora.rank to at least"),
                              ({"lora__targets": ["q_proj"]}, "adapts a matrix that lora.targets leaves out"),
                              ({"train__eval_every": 0}, "train.eval_every is 0, so nothing is evaluated"),
                              ({"lora__rank": 0}, "lora.rank is 0: set it"),
                              ({"train__eval_adapters": ["é"]}, "train.eval_adapters has 'é': give NAME=FOLDER"),
                              ({"train__eval_adapters": others + others[:1]}, "names 'attention' twice"),
                              ({"train__eval_adapters": [f"none={self.model}"]}, "there is no")):
            result = call(*run("refused", **changes))
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(told, result.stderr)

    def test_requests_choose_one_by_name(self):
        with self.server() as server:
            listed = json.loads(server.call("GET", "/v1/models")[1])["data"]
            self.assertEqual([(model["id"], model.get("parent")) for model in listed],
                             [("base", None), *((name, "base") for name in TARGETS)])
            self.assertEqual(server.call("GET", "/v1/models/experts")[0], 200)
            body = {"prompt": PROMPTS[2], "max_tokens": TOKENS, "temperature": 0}
            said = {name: server.ask("completions", **body, model=name) for name in ("base", *TARGETS)}
            self.assertEqual([answer["model"] for answer in said.values()], ["base", *TARGETS])
            self.assertEqual(len({answer["choices"][0]["text"] for answer in said.values()}), len(said))
            with concurrent.futures.ThreadPoolExecutor(9) as pool:
                again = list(pool.map(lambda name: (name, server.ask("completions", **body, model=name)), [*said] * 4))
            for name, answer in again:
                self.assertEqual(answer["choices"], said[name]["choices"])
            status, told = server.call("POST", "/v1/completions", body | {"model": "none"})
            self.assertEqual(status, 404)
            self.assertIn("or its adapters 'attention', 'experts', 'down', 'own'", told)

    def server(self):
        served = Server("--model", self.model, "--name", "base", "--context-length", 64,
                        "--tokenizer", byte_tokenizer(self.folder / "tokenizer"), *self.modules())

        class Closing:
            def __enter__(self):
                return served

            def __exit__(self, *_):
                served.close()
        return Closing()


if __name__ == "__main__":
    unittest.main()
