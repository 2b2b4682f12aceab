"""import and export: a folder comes back as it was, and what training knew is in it."""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import unittest

from chat_corpora_test import PLAIN, TOOLS, WRITER
from commands import CommandTest, call
from small_models import run_configuration

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from tensor_files import read_tensors, write_tensors  # noqa: E402

FIXTURES = TESTS / "data" / "parity"


def tensors_of(folder):
    """{name: (type, shape, bytes)} of a folder's weights."""
    return {name: tensor for path in folder.glob("model*.safetensors") for name, tensor in read_tensors(path)[0].items()}


def narrow(data):
    """FP32's bytes as BF16's, rounded to nearest even."""
    bits = struct.unpack(f"<{len(data) // 4}I", data)
    return struct.pack(f"<{len(bits)}H", *((b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits))


class Exports(CommandTest):
    def setUp(self):
        self.place = self.folder / self._testMethodName
        self.place.mkdir()

    def copied(self, case):
        """A fixture's model without its data."""
        model = self.place / case
        model.mkdir()
        for name in ("config.json", "model.safetensors", "generation_config.json"):
            if (FIXTURES / case / name).exists():
                shutil.copy(FIXTURES / case / name, model)
        return model

    def again(self, model, *arguments):
        imported, out = self.place / "imported", self.place / "again"
        for path in (imported, out):
            shutil.rmtree(path, ignore_errors=True)
        self.done("import", model, "--out", imported)
        self.done("export", imported, "--out", out, *arguments)
        return out

    def run_file(self, model, corpus, steps=1, rate=0.0, context=96, more="", name="run"):
        path = self.place / f"{name}.toml"
        rates = {"optimizer__lr": rate, "optimizer__min_lr": 0.0, "optimizer__warmup_steps": 0}
        path.write_text(run_configuration({"hf": str(model)}, corpus, self.place / name, data__context_length=context,
                                          train__steps=steps, checkpoint__every=steps, **rates) + more)
        return path

    def test_every_familys_folder_comes_back(self):
        for case in sorted(path.parent.name for path in FIXTURES.glob("*/model.safetensors")):
            with self.subTest(case):
                model = self.copied(case)
                (model / "notes").mkdir()
                (model / "notes/any.bytes").write_bytes(bytes(range(256)))
                out = self.again(model, "--dtype", "auto")
                self.assertEqual(tensors_of(out), tensors_of(model))
                self.assertEqual(json.loads((out / "config.json").read_text()), json.loads((model / "config.json").read_text()))
                self.assertEqual((out / "notes/any.bytes").read_bytes(), bytes(range(256)))
                shutil.rmtree(model)

    def test_linear_modules_in_fewer_bits(self):
        """Written as bitsandbytes does, and read as it reads: codes of NF4 and of int8 are decoded here once more."""
        model, module = self.copied("tied_llama3"), "model.layers.1.mlp.down_proj"
        self.done("import", model, "--out", self.place / "run")
        for kind in ("nf4", "nf4-double", "int8"):
            with self.subTest(kind):
                out = self.place / kind
                told = json.loads(self.done("export", self.place / "run", "--out", out, "--quantize", kind, "--dtype", "bfloat16", "--json"))
                self.assertEqual(told["quantized"], kind)
                self.assertGreater(told["checked"]["loss"], 0)
                tensors = tensors_of(out)
                values = lambda end: struct.unpack(f"<{len(tensors[end][2]) // 4}f", tensors[end][2])
                single = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
                rows, columns = tensors_of(model)[f"{module}.weight"][1]
                codes = tensors[f"{module}.weight"][2]
                if kind == "int8":
                    signed, maxima = struct.unpack(f"<{len(codes)}b", codes), values(f"{module}.SCB")
                    self.assertEqual(tensors[f"{module}.weight_format"][2], b"\0")
                    decoded = [single(single(code * maxima[i // columns]) * single(1 / 127)) for i, code in enumerate(signed)]
                else:
                    maxima = self.maxima_of(tensors, f"{module}.weight", values, single)
                    levels = values(f"{module}.weight.quant_map")
                    halves = [half for byte in codes for half in (byte >> 4, byte & 15)][:rows * columns]
                    decoded = [single(levels[half] * maxima[i // 64]) for i, half in enumerate(halves)]
                self.done("import", out, "--out", self.place / f"{kind}-run")
                self.done("export", self.place / f"{kind}-run", "--out", self.place / f"{kind}-wide")
                wide = tensors_of(self.place / f"{kind}-wide")[f"{module}.weight"]
                self.assertEqual(wide[2], struct.pack(f"<{len(decoded)}f", *decoded))
                self.assertNotIn("quantization_config", json.loads((self.place / f"{kind}-wide/config.json").read_text()))
        result = call("export", self.place / "run", "--out", self.place / "none", "--quantize", "nf4", "--adapters")
        self.assertNotEqual(result.returncode, 0)

    def maxima_of(self, tensors, matrix, values, single):
        """The maxima of NF4's blocks, quantised themselves or not."""
        if tensors[f"{matrix}.absmax"][0] == "F32":
            return values(f"{matrix}.absmax")
        state = json.loads(tensors[f"{matrix}.quant_state.bitsandbytes__nf4"][2])
        levels, nested = values(f"{matrix}.nested_quant_map"), values(f"{matrix}.nested_absmax")
        return [single(single(levels[code] * nested[i // state["nested_blocksize"]]) + single(state["nested_offset"]))
                for i, code in enumerate(tensors[f"{matrix}.absmax"][2])]

    def test_types_that_a_folder_mixes_stay(self):
        for case, wide in (("glm4_moe", ("e_score_correction_bias",)), ("qwen3_next", ("A_log", "dt_bias", "norm.weight"))):
            with self.subTest(case):
                model = self.copied(case)
                tensors = {name: (kind, shape, data) if name.endswith(wide) else ("BF16", shape, narrow(data))
                           for name, (kind, shape, data) in tensors_of(model).items()}
                write_tensors(model / "model.safetensors", tensors)
                self.assertEqual(tensors_of(self.again(model, "--dtype", "bfloat16")), tensors)
                self.assertEqual({kind for kind, _, _ in tensors_of(self.again(model)).values()}, {"F32"})

    # Near 7 BF16 has steps of 0.03, and other experts would be chosen.
    def test_corrections_of_routers_are_never_narrowed(self):
        kinds = {name: kind for name, (kind, _, _) in tensors_of(self.again(self.copied("deepseek_v3"), "--dtype", "bfloat16")).items()}
        self.assertEqual({kind for name, kind in kinds.items() if name.endswith("e_score_correction_bias")}, {"F32"})
        self.assertEqual(kinds["lm_head.weight"], "BF16")

    def test_heads_that_differ_from_a_tied_embedding_are_named(self):
        model = self.copied("tied_llama3")
        tensors = tensors_of(model)
        kind, shape, data = tensors["model.embed_tokens.weight"]
        tensors["lm_head.weight"] = (kind, shape, data)
        write_tensors(model / "model.safetensors", tensors)
        self.assertEqual(tensors_of(self.again(model)), tensors)
        tensors["lm_head.weight"] = (kind, shape, data[::-1])
        write_tensors(model / "model.safetensors", tensors)
        refused = call("import", model, "--out", self.place / "refused")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("lm_head.weight' differs from 'model.embed_tokens.weight'", refused.stderr)

    def test_positions_that_grow_leave_the_model_as_it_is(self):
        for name, scaling in (("absent", {}), ("said", {"original_max_position_embeddings": 48})):
            with self.subTest(name):
                model = self.copied("gqa")
                config = json.loads((model / "config.json").read_text())
                config.pop("rope_parameters", None)
                config |= {"rope_theta": 100.0, "rope_scaling": {"rope_type": "yarn", "factor": 2.0} | scaling}
                (model / "config.json").write_text(json.dumps(config))
                shutil.rmtree(self.place / "run", ignore_errors=True)
                self.done("train", "--config", self.run_file(model, FIXTURES / "gqa/corpus", context=192))
                out = self.place / f"out-{name}"
                said = self.done("export", self.place / "run", "--out", out)
                self.assertIn("checked: loaded again, it has the loss of the checkpoint", said)
                self.assertEqual(json.loads((out / "config.json").read_text())["max_position_embeddings"], 192)
                losses = [json.loads(self.done("eval", "--model", folder, "--corpus", FIXTURES / "gqa/corpus", "--json"))["loss"]
                          for folder in (model, out)]
                self.assertAlmostEqual(*losses, places=9)
                shutil.rmtree(model)

    def chats(self):
        """A base model whose tokenizer has no template, and conversations by one that was given."""
        base = self.copied("gqa")
        subprocess.run([TOOLS, "-c", WRITER, base / "tokenizer.json"], check=True)
        (base / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_start|>"}))
        config = json.loads((base / "config.json").read_text()) | {"vocab_size": 258, "eos_token_id": 256}
        (base / "config.json").write_text(json.dumps(config))
        tensors = tensors_of(base)
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            kind, shape, data = tensors[name]
            tensors[name] = (kind, [258, shape[1]], data + data[:4 * (258 - shape[0]) * shape[1]])
        write_tensors(base / "model.safetensors", tensors)
        (base / "generation_config.json").write_text('{"eos_token_id": 256, "temperature": 0.7}')
        (self.place / "chatml.jinja").write_text(PLAIN)
        rows = [{"messages": [{"role": "user", "content": f"{i}?"}, {"role": "assistant", "content": "yes"}]} for i in range(20)]
        (self.place / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.done("corpus", "build", self.place / "c.jsonl", "--chat", "--chat-template", self.place / "chatml.jinja",
                  "--tokenizer", base, "--out", self.place / "corpus")
        return base

    def test_a_tuned_base_model_has_its_template_and_ends_its_turns(self):
        base = self.chats()
        trained = call("train", "--config", self.run_file(base, self.place / "corpus/corpus", rate=1e-3))
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn("messages with a loss end with <|im_end|> (257)", trained.stderr)
        said = json.loads(self.done("export", self.place / "run", "--out", self.place / "out", "--json"))
        self.assertEqual(said["checked"]["end_tokens"], [256, 257])
        self.assertEqual((self.place / "out/chat_template.jinja").read_text(), PLAIN)
        generation = json.loads((self.place / "out/generation_config.json").read_text())
        self.assertEqual(generation, {"eos_token_id": [256, 257], "temperature": 0.7})
        imported = self.again(self.place / "out")  # nothing of it is lost on the way
        self.assertEqual(json.loads((imported / "generation_config.json").read_text()), generation)

    def test_adapters_name_their_model(self):
        model, corpus = self.copied("gqa"), FIXTURES / "gqa/corpus"
        lora = '[lora]\nrank = 2\nalpha = 4\ntargets = ["q_proj"]\n'
        base = lambda name, *arguments: (
            self.done("export", self.place / name, "--out", self.place / f"{name}-out", "--adapters", *arguments),
            json.loads((self.place / f"{name}-out/adapter_config.json").read_text())["base_model_name_or_path"])[1]
        self.done("train", "--config", self.run_file(model, corpus, more=lora, name="own"))
        self.assertEqual(base("own"), str(model))
        self.done("import", model, "--out", self.place / "imported")
        self.done("train", "--config", self.run_file(model, corpus, more=lora, name="taken"), "--resume", self.place / "imported")
        self.assertEqual(base("taken"), str(model))
        shutil.rmtree(self.place / "taken-out")
        self.assertEqual(base("taken", "--base", "meta/model"), "meta/model")

    def test_what_was_checked_is_said(self):
        model = self.copied("gqa")
        self.done("import", model, "--out", self.place / "imported")
        said = self.done("export", self.place / "imported", "--out", self.place / "out", "--dtype", "float16")
        self.assertIn("checked: loaded again, it has the loss of the checkpoint", said)
        self.assertIn("3 sequences; end tokens 2; no chat template; no tokenizer", said)
        unchecked = self.done("export", self.place / "imported", "--out", self.place / "quiet", "--no-check")
        self.assertNotIn("checked: ", unchecked)


if __name__ == "__main__":
    unittest.main()
