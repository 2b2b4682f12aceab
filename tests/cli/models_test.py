"""sluice models: the registry of families as people, programs and the documentation have it; and how many model types open."""

import json
import pathlib
import subprocess
import sys
import unittest

from commands import SLUICE, CommandTest, call

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEFAULTS = ROOT / "tests/data/default_configs.json"
OPEN = 72  # of the model types in DEFAULTS: it only grows


class Models(CommandTest):
    def test_families_are_listed_for_people_and_programs(self):
        rows = json.loads(self.done("models", "--json"))
        fields = {"model_type", "trains", "lora", "generates", "plans", "missing"}
        self.assertTrue(all(set(row) == fields for row in rows))
        types = [row["model_type"] for row in rows]
        self.assertEqual(len(types), len(set(types)))
        by_type = {row["model_type"]: row for row in rows}
        self.assertEqual(by_type["llama"], {"model_type": "llama", "trains": True, "lora": True, "generates": True, "plans": True,
                                            "missing": ""})
        self.assertEqual("adapters of router", by_type["olmoe"]["missing"])
        self.assertIn("images", by_type["qwen3_vl"]["missing"])
        table = self.done("models")
        for name in types:
            self.assertRegex(table, rf"(?m)^{name} ")
        self.assertEqual(call("models", "--json", "--markdown").returncode, 2)

    def test_the_page_has_the_table_of_the_registry(self):
        pages = [page for page in (ROOT / "docs").glob("*.md") if "## Supported families" in page.read_text()]
        self.assertEqual(len(pages), 1)
        self.assertIn("\n\n" + self.done("models", "--markdown") + "\n", pages[0].read_text(),
                      f"{pages[0].name}: put what `sluice models --markdown` prints in place of its table")

    def test_the_count_of_types_that_open(self):
        counted = subprocess.run([sys.executable, "-B", ROOT / "tools/family_count", "--sluice", SLUICE, "--json"],
                                 capture_output=True, text=True, check=True)
        found = json.loads(counted.stdout)
        self.assertEqual(found["types"], len(json.loads(DEFAULTS.read_text())))
        self.assertGreaterEqual(found["trains"], OPEN, counted.stdout)
        for name, (kind, why) in found["verdicts"].items():
            self.assertEqual(kind == "trains", why == "", name)
        self.assertEqual(found["verdicts"]["qwen3_vl_text"][0], "trains")
        self.assertEqual(found["verdicts"]["llama4"][0], "trains")
        self.assertIn("gating is true", found["verdicts"]["laguna"][1])

    def test_inspect_says_what_a_file_can_do_and_what_is_missing(self):
        path = self.folder / "config.json"
        configs = json.loads(DEFAULTS.read_text())
        path.write_text(json.dumps(configs["olmo3"]))
        self.assertIn("trains (LoRA on q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj), generates, plans",
                      self.done("inspect", path))
        path.write_text(json.dumps(configs["deepseek_v3"] | {"topk_method": "greedy"}))
        said = self.done("inspect", path)
        self.assertIn("plans alone", said)
        self.assertRegex(said, 'does not train: .*topk_method is "greedy"')
        path.write_text(json.dumps(configs["olmo3"] | {"some_new_gate": 2}))
        result = call("inspect", path)
        self.assertEqual(result.returncode, 2)
        self.assertIn("some_new_gate is 2", result.stderr)


if __name__ == "__main__":
    unittest.main()
