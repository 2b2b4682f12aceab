"""Commands about runs that need no training: keys, and watch on lines as training writes them."""

import json
import unittest

from commands import CommandTest, call


class Keys(CommandTest):
    def test_what_config_prints_is_a_configuration(self):
        path = self.folder / "all.toml"
        path.write_text(self.done("keys", "config"))
        again = self.done("keys", "config", "--config", path)
        self.assertEqual(again, path.read_text())
        changed = self.done("keys", "config", "--config", path, "--set", "train.steps=7", "--set", "memory.offload=0.5")
        self.assertIn("\nsteps = 7 ", changed)
        self.assertIn("\noffload = 0.5 ", changed)
        self.assertEqual(sum(a != b for a, b in zip(again.splitlines(), changed.splitlines())), 2)

    def test_unknown_keys_name_the_nearest(self):
        wrong = call("keys", "config", "--set", "train.stepz=7")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("did you mean 'steps'", wrong.stderr)


class Watch(CommandTest):
    def run_of(self, name, paces, alarms=()):
        folder = self.folder / name
        folder.mkdir()
        lines = [{"step": step, "time_ms": 3, "rank_slowdown": pace, "rank_wait_ms": [1, 2]} for step, pace in enumerate(paces)]
        for line in lines[-4:]:
            line["alarms"] = alarms
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return folder

    def test_slow_rank_is_named(self):
        run = self.run_of("slow", [[1, 1]] * 10 + [[1.6, 1]] * 10, [{"rank": 0, "metric": "slowdown", "since": 10, "score": 1.6}])
        watched = json.loads(self.done("watch", run, "--json"))
        self.assertEqual(watched["step"], 19)
        self.assertEqual([rank["alarms"] for rank in watched["ranks"]], [["slowdown"], []])
        self.assertAlmostEqual(watched["ranks"][0]["slowdown"], 1.6)
        self.assertIn("slowdown since step 11 (4 of 20 steps)", self.done("watch", run))

    def test_nobody_is_where_all_are_alike(self):
        run = self.run_of("alike", [[1, 1.02], [1.03, 1]] * 20)
        self.assertEqual([rank["alarms"] for rank in json.loads(self.done("watch", run, "--json"))["ranks"]], [[], []])

    def test_folder_without_metrics_is_refused(self):
        wrong = call("watch", self.folder)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("give the directory of a run", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
