"""tools/cluster_of: a measured calibration as a cluster file."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[1] / "tools" / "cluster_of"
# Of a layer 2·(4 + 2)·8 rows of attention and 3·100 of the FFN, 32 wide: 12,672 parameters.
CALIBRATION = {
    "schema": "sluice.calibration/1", "hardware": "a box", "source": "measured", "gpus_per_node": 4,
    "model": {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 100},
    "layers": [{"tp": 1, **{part: {"a": 9, "b": b, "c": 7} for part, b in
                            (("forward", 1000), ("backward_input", 1500), ("backward_weight", 500))}}],
    "links": {"intra": {"latency_ns": 5000, "bytes_per_s": 3.6e11}, "inter": {"latency_ns": 10000, "bytes_per_s": 4e10},
              "host": {"latency_ns": 0, "bytes_per_s": 4.8e10}},
    "memory": {"device_bytes": 80 << 30},
}


class ClusterOfTest(unittest.TestCase):
    def run_tool(self, calibration, *arguments):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(calibration, file)
            file.flush()
            return subprocess.run([sys.executable, "-B", TOOL, file.name, *arguments], capture_output=True, text=True, check=False)

    def test_the_measured_figures_in_the_files_units(self):
        done = self.run_tool(CALIBRATION, "--name", "mine", "--nodes", "2", "--nics-per-node", "1")
        self.assertEqual(done.stdout[:done.stdout.index("host_memory_bytes")], f"""# a box: measured
schema = "sluice.cluster/1"
name = "mine"
nodes = 2
gpus_per_node = 4
device_memory_bytes = {80 << 30}
flops_per_ns = 25.34
intra_node = {{bytes_per_ns = 360, latency_ns = 5000}}
inter_node = {{bytes_per_ns = 40, latency_ns = 10000}}
nics_per_node = 1
host_bytes_per_ns = 48
""")  # 25.34 is 6 · 12,672 ÷ 3,000

    def test_groups_of_ranks_are_groups_of_nodes(self):
        between = {"latency_ns": 30000, "bytes_per_s": 1e10}
        done = self.run_tool({**CALIBRATION, "groups": [{"ranks": 16, "between": between}]})
        self.assertIn("""inter_node = {bytes_per_ns = 40, latency_ns = 10000}
groups = [{name = "group 1", nodes = 4, between = {bytes_per_ns = 10, latency_ns = 30000}}]
nics_per_node = 4
""", done.stdout)

    def test_what_was_not_measured_is_refused(self):
        published = {**CALIBRATION, "layers": []}
        self.assertIn("measure with a strategy of <1,1,1>", self.run_tool(published).stderr)
        self.assertIn("is no calibration.json", self.run_tool({"schema": "sluice.plan/1"}).stderr)


if __name__ == "__main__":
    unittest.main()
