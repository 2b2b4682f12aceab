"""What strangers write into files reaches no terminal as it is, and every fault of theirs is one line of ours."""

import json
import os
import re
import subprocess
import unittest

from commands import HANG_S, SLUICE, CommandTest, call

ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202e"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffd]")


class HostileText(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "lengths.txt").write_text("17\n900\n3\n")

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
        return path

    def fault(self, *arguments, status=2):
        result = call(*arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assert_clean(result)
        self.assertTrue(result.stderr.startswith("sluice: "), result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        return result.stderr

    def assert_clean(self, result):
        for text in (result.stdout, result.stderr):
            self.assertIsNone(CONTROL.search(text), repr(text))
            self.assertNotIn("json.exception", text)

    def test_faults_show_escapes_as_text(self):
        lengths = self.fault("lengths", self.write("lengths.txt.bad", f"17\n{ESCAPE}\n"))
        self.assertIn("\\u001b]0;owned\\u0007", lengths)
        self.fault("inspect", self.write("run.toml", f"[model]\n{json.dumps(ESCAPE)} = 1\n"))
        self.fault("lengths", self.folder / ESCAPE)
        self.fault("inspect", self.write(f"{ESCAPE}.json", {"schema": ESCAPE}))
        self.fault("inspect", self.write("config.json", {"architectures": ["LlamaForCausalLM"], "model_type": ESCAPE}))
        self.fault("plan", "--gpus", "2", "--model", "llama-7b", "--lengths", self.folder / "lengths.txt", "--cluster",
                   self.write("cluster.json", {"schema": "sluice.cluster/1", ESCAPE: 1}))
        self.fault("plan", ESCAPE)

    def test_results_show_escapes_as_text(self):
        log = call("inspect", self.write("rank-0.log", f"a line\n{ESCAPE}\n"))
        self.assertEqual(log.returncode, 0, log.stderr)
        self.assert_clean(log)
        self.assertIn("\\u001b[2J", log.stdout)
        metrics = call("inspect", self.write("metrics.jsonl", json.dumps({"step": 0, "strategy": ESCAPE}) + "\n"))
        self.assertEqual(metrics.returncode, 0, metrics.stderr)
        self.assert_clean(metrics)
        as_json = call("lengths", self.write(f"{ESCAPE}.txt", "3\n"), "--json")
        self.assert_clean(as_json)
        json.loads(as_json.stdout)

    def test_paths_that_are_no_utf8_are_shown(self):
        path = bytes(self.folder) + b"/\xff\xfe.txt"
        with open(path, "w") as file:
            file.write("3\n")
        for arguments in (["lengths", path, "--json"], ["lengths", path], ["lengths", path + b".absent"]):
            result = subprocess.run([os.fsencode(SLUICE), *arguments], capture_output=True, timeout=HANG_S)
            self.assertIn(result.returncode, (0, 2), result.stderr)
            self.assertNotIn(b"json.exception", result.stderr)
            self.assertNotIn(b"\xff", result.stdout + result.stderr)

    def test_deep_keys_and_broken_json_are_named(self):
        self.assertIn(":1: a key has more than 16 parts", self.fault("inspect", self.write("deep.toml", "[" + "a." * 50_000 + "a]")))
        self.assertIn("is not JSON: ", self.fault("inspect", self.write("broken.json", "{")))

    def test_figures_out_of_range_are_named_with_their_range(self):
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
                  "num_hidden_layers": 10_000_000, "num_attention_heads": 4, "vocab_size": 384}
        self.assertIn("'num_hidden_layers' is 10000000: give a whole number from 1 to 4096",
                      self.fault("inspect", self.write("config.json", config)))
        planning = ("plan", "--gpus", "2", "--lengths", self.folder / "lengths.txt")
        config.update(num_hidden_layers=4, hidden_size=1_000_000, num_attention_heads=1000, intermediate_size=10_000_000)
        self.assertIn("hidden 1000000",
                      self.fault(*planning, "--cluster", "local", "--model", self.write("config.json", config)))
        cluster = {
            "schema": "sluice.cluster/1", "name": "mine", "nodes": 1, "gpus_per_node": 2,
            "device_memory_bytes": 80_000_000_000, "flops_per_ns": 1e5,
            "intra_node": {"bytes_per_ns": 100, "latency_ns": 1e300},
            "inter_node": {"bytes_per_ns": 10, "latency_ns": 1e4}, "host_bytes_per_ns": 20,
            "host_memory_bytes": 1_000_000_000_000}
        self.assertIn("intra_node: key 'latency_ns' is 1e+300: give a number from 0 to",
                      self.fault(*planning, "--model", "llama-7b", "--cluster", self.write("cluster.json", cluster)))


if __name__ == "__main__":
    unittest.main()
