"""Several adapters beside one model in generate and serve: each answers as its merged model does, in one engine with the others;
and adapters that do not belong to the model are refused."""

import json
import pathlib
import shutil
import struct
import unittest

from commands import CommandTest, call
from serve_test import Server
from small_models import byte_tokenizer, run_configuration

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "data" / "parity"
TARGETS = {"attention": ["q_proj", "o_proj"], "experts": ["v_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}
PROMPTS = [[5, 9, 2], [7], [1, 2, 3, 4, 5, 6, 7, 8], [90, 3, 60], [11, 12]]
TOKENS = 12


def rewritten(folder, out, change):
    """A copy of an adapter whose header `change` has changed."""
    shutil.copytree(folder, out)
    path = out / "adapter_model.safetensors"
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = change(json.loads(data[8:8 + size]))
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size:])
    return out


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
                lora__rank=rank, lora__alpha=8.0 * rank, lora__targets=targets))
            cls.done("train", "--config", config)
            cls.adapters[name] = cls.folder / f"{name}-adapter"
            cls.merged[name] = cls.folder / f"{name}-merged"
            cls.done("export", cls.folder / name, "--out", cls.adapters[name], "--adapters")
            cls.done("export", cls.folder / name, "--out", cls.merged[name], "--no-check")

    def modules(self, *names):
        return ["--adapter", *(f"{name}={self.adapters[name]}" for name in names or TARGETS)]

    def ids(self, model, prompts, *arguments):
        lines = self.folder / "prompts.jsonl"
        lines.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
        out = self.folder / "said.jsonl"
        out.unlink(missing_ok=True)
        self.done("generate", "--model", model, "--prompts", lines, "--out", out, "--tokens", TOKENS, "--dtype", "float64", *arguments)
        return [json.loads(line)["ids"] for line in out.read_text().splitlines()]

    def test_each_answers_as_its_merged_model(self):
        plain = [{"ids": ids} for ids in PROMPTS]
        expected = {name: self.ids(folder, plain) for name, folder in self.merged.items()} | {"": self.ids(self.model, plain)}
        self.assertEqual(len({json.dumps(each) for each in expected.values()}), 3, "the adapters change nothing")
        asked = [prompt | {"model": name} for prompt in plain for name in expected]
        wanted = [expected[name][i] for i in range(len(PROMPTS)) for name in expected]
        self.assertEqual(self.ids(self.model, asked, *self.modules()), wanted)
        self.assertEqual(self.ids(self.model, asked, *self.modules(), "--nproc", 2, "--strategy", "<2,1,1>"), wanted)
        self.assertEqual(self.ids(self.model, asked, *self.modules(), "--nproc", 2, "--strategy", "<1,2,1>"), wanted)

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
        dora = self.folder / "dora"
        shutil.copytree(own, dora)
        config = json.loads((dora / "adapter_config.json").read_text())
        (dora / "adapter_config.json").write_text(json.dumps(config | {"use_dora": True}))
        self.assertIn("use_dora is true, which Sluice does not compute", refusal(f"a={dora}"))

    def test_requests_choose_one_by_name(self):
        with self.server() as server:
            listed = json.loads(server.call("GET", "/v1/models")[1])["data"]
            self.assertEqual([(model["id"], model.get("parent")) for model in listed],
                             [("base", None), ("attention", "base"), ("experts", "base")])
            self.assertEqual(server.call("GET", "/v1/models/experts")[0], 200)
            body = {"prompt": PROMPTS[2], "max_tokens": TOKENS, "temperature": 0}
            said = {name: server.ask("completions", **body, model=name) for name in ("base", *TARGETS)}
            self.assertEqual([answer["model"] for answer in said.values()], ["base", *TARGETS])
            self.assertEqual(len({answer["choices"][0]["text"] for answer in said.values()}), 3)
            status, told = server.call("POST", "/v1/completions", body | {"model": "none"})
            self.assertEqual(status, 404)
            self.assertIn("or its adapters 'attention', 'experts'", told)

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
