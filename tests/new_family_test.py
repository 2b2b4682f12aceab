"""tools/new_family: what it writes for a published config.json, in a copy of the folders that it edits."""

import ast
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIG = {"model_type": "cobalt", "architectures": ["CobaltForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 99, "attention_bias": True, "residual_dropout": 0.0, "gate_limit": 7.5,
          "kinds": ["wide", "narrow"], "positions": "turned", "eos_token_id": 3, "transformers_version": "5.23.0"}


class NewFamilyTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.scratch.name)
        for folder in ("src/model/families", "tests/parity"):
            shutil.copytree(ROOT / folder, self.root / folder)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "new_family", self.root / "tools")

    def tearDown(self):
        self.scratch.cleanup()

    def run_tool(self, name, config):
        path = self.root / "config.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        return subprocess.run([sys.executable, "-B", self.root / "tools" / "new_family", name, path], capture_output=True,
                              text=True, check=False)

    def read(self, path):
        return (self.root / path).read_text()

    def test_reader_row_fixture_and_test(self):
        done = self.run_tool("cobalt", CONFIG)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('{"cobalt", "Cobalt", "as LLaMA, but for the keys that cobalt.cpp pins", "CobaltForCausalLM", read_cobalt, '
                      '{}},\n};', self.read("src/model/families/registry.cpp"))
        self.assertIn("Read read_cobalt, ", self.read("src/model/families/registry.cpp"))
        self.assertIn(" cobalt whole_", self.read("tests/parity/CMakeLists.txt"))
        cases = ast.parse(self.read("tests/parity/make_fixtures.py"))
        value = next(node.value for node in cases.body
                     if isinstance(node, ast.Assign) and node.targets[0].id == "CASES")
        case = {key.value: entry for key, entry in zip(value.keys, value.values)}["cobalt"]
        self.assertEqual(ast.literal_eval(case)["family"], "cobalt")

    def test_every_key_that_says_something_is_pinned(self):
        self.run_tool("cobalt", CONFIG)
        reader = self.read("src/model/families/cobalt.cpp")
        for line in ('read_decoder(config, {.biases = true}, outline);', 'config.only("attention_bias", true);',
                     'config.only("gate_limit", 7.5);', 'config.only("positions", "turned");',
                     'config.only("kinds", base::Json::parse(R"(["wide", "narrow"])"));'):
            self.assertIn(line, reader)
        for key in ("residual_dropout", "eos_token_id", "transformers_version", "hidden_size", "model_type"):
            self.assertNotIn(key, reader)

    def test_what_cannot_begin_changes_nothing(self):
        before = self.read("src/model/families/registry.cpp")
        for name, config, fault in (("cobalt", "{", "config.json"), ("Cobalt-2", CONFIG, "Cobalt-2 is no name"),
                                    ("llama", CONFIG, "llama.cpp is there already"),
                                    ("mine", CONFIG | {"model_type": "qwen3"}, "model_type qwen3 has a row"),
                                    ("cobalt", CONFIG | {"architectures": None}, "architectures is null")):
            done = self.run_tool(name, config)
            self.assertEqual(done.returncode, 1)
            self.assertIn(fault, done.stderr)
        self.assertEqual(self.read("src/model/families/registry.cpp"), before)


if __name__ == "__main__":
    unittest.main()
