"""simulate: its files, its repeatability and its errors."""

import json
import pathlib
import random
import tempfile
import unittest

import commands


def call(*arguments):
    return commands.call("simulate", *arguments)


class Simulate(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        generator = random.Random(1)
        lengths = [min(int(generator.lognormvariate(6, 1)) + 2, 8192) for _ in range(2000)]
        (self.folder / "lengths.txt").write_text("".join(f"{length}\n" for length in lengths))
        self.inputs = ["--gpus", 8, "--cluster", "a800x8", "--model", "llama-7b", "--context", 8192,
                       "--tokens-per-step", 50000, "--lengths", self.folder / "lengths.txt",
                       "--strategies", "2x<4,1,1>", "--strategies", "<8,1,1>"]

    def files(self, name, *options):
        out = self.folder / name
        result = call(*self.inputs, "--steps", 3, "--out", out, "--trace-steps", "0,2", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return {path.name: path.read_bytes() for path in out.iterdir()}

    def fails(self, status, message, *arguments):
        result = call(*arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertIn(message, result.stderr)

    def test_writes_what_the_documentation_says(self):
        files = self.files("out")
        self.assertEqual(sorted(files), ["metrics.jsonl", "report.html", "simulation.json", "trace-0.json",
                                         "trace-2.json"])
        summary = json.loads(files["simulation.json"])
        self.assertEqual(summary["schema"], "sluice.simulation/1")
        steps = [json.loads(line) for line in files["metrics.jsonl"].splitlines()]
        self.assertEqual([step["step"] for step in steps], [0, 1, 2])
        mean = sum(step["time_ms"] for step in steps) / 3 * 1e6
        self.assertAlmostEqual(summary["systems"]["sluice"]["mean_step_ns"], mean, delta=2)
        for step in steps:
            self.assertAlmostEqual(sum(step["rank_time_ns"].values()), 8e6 * step["time_ms"], delta=10)
        trace = json.loads(files["trace-0.json"])
        self.assertEqual({event["pid"] for event in trace["traceEvents"]}, set(range(8)))

    def test_repeats_byte_for_byte(self):
        first, second = self.files("first"), self.files("second")
        second["report.html"] = second["report.html"].replace(b"second", b"first")  # its title
        self.assertEqual(first, second)

    def test_json_is_the_summary(self):
        result = call(*self.inputs, "--steps", 2, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(set(json.loads(result.stdout)["systems"]), {"sluice"})

    def test_bad_input_is_refused(self):
        self.fails(2, "there is no system 'megatrom'", *self.inputs, "--compare", "megatrom")
        self.fails(2, "is of another model", *self.inputs, "--calibration", "a800-13b")
        self.fails(3, "cannot hold the model", "--gpus", 2, "--model", "llama-32b", "--lengths",
                   self.folder / "lengths.txt")
        self.fails(2, "--trace-steps names step 3 but --steps 3 simulates 0 to 2", *self.inputs, "--steps", 3,
                   "--out", self.folder / "out", "--trace-steps", 3)
        self.fails(2, "no lengths are given", "--gpus", 8, "--model", "llama-7b")
        cluster = self.folder / "cluster.toml"
        cluster.write_text("""
schema = "sluice.cluster/1"
name = "mine"
nodes = 2
gpus_per_node = 4
device_memory_bytes = 80_000_000_000
flops_per_ns = 1e5
intra_node = {bytes_per_ns = 100, latency_ns = 5e3}
inter_node = {bytes_per_ns = 0, latency_ns = 1e4}
host_bytes_per_ns = 20
host_memory_bytes = 1_000_000_000_000
""")
        self.fails(2, "inter_node: key 'bytes_per_ns' is 0: give a number from", "--cluster", cluster, "--model", "llama-7b", "--lengths",
                   self.folder / "lengths.txt")

    def test_run_configuration_is_simulated(self):
        (self.folder / "text.txt").write_text("\n\n\n".join(f"document {i} " + "word " * (i % 50) for i in range(300)))
        corpus = self.folder / "corpus"
        built = commands.call("corpus", "build", self.folder / "text.txt", "--out", corpus, "--train-tokenizer", 300,
                              "--delimiter", "\n\n\n")
        self.assertEqual(built.returncode, 0, built.stderr)
        config = self.folder / "run.toml"
        config.write_text(f"""
[model]
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn_hidden = 48
vocab = 384
[data]
train = [["{corpus}/corpus", 1.0]]
context_length = 128
tokens_per_step = 512
[parallel]
strategies = ["2x<1,2,1>", "4x<1,1,1>"]
""")
        result = call("--config", config, "--steps", 2, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["ranks"], 4)
        self.fails(2, "excludes", "--config", config, "--model", "llama-7b")


if __name__ == "__main__":
    unittest.main()
