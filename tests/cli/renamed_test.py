"""Old names: refused where people write them, read where the program wrote them, and listed."""

import json
import unittest

from commands import CommandTest, call

OLD = '''[model]
hf = "folder"
[data]
train = ["corpus"]
[rl]
group = 3
[parallel]
speaking = "4x<2,1,1>"
'''


class Renamed(CommandTest):
    def test_names_of_before_are_refused_with_those_of_now(self):
        for arguments, told in {("keys", "config", "--set", "rl.group=4"): "rl.group is now rl.num_generations",
                                ("plan", "--serving", "--responses=3", "--prompts", 7): "--responses is now --output-len; --prompts is now --input-len",
                                ("propose", "--no-share"): "--no-share is now --no-fsdp"}.items():
            wrong = call(*arguments)
            self.assertEqual(wrong.returncode, 2)
            self.assertIn(told, wrong.stderr)

    def test_a_run_may_go_on_from_its_configuration_of_before(self):
        run = self.folder / "old"
        run.mkdir()
        (run / "config.toml").write_text(OLD)
        self.assertEqual(call("keys", "config", "--config", run / "config.toml").returncode, 2)
        (run / "metrics.jsonl").write_text("")
        shown = self.done("keys", "config", "--config", run / "config.toml")
        self.assertIn("\nnum_generations = 3 ", shown)
        self.assertIn('\nrollout_strategy = "4x<2,1,1>" ', shown)

    def test_lines_of_a_run_of_before_are_watched(self):
        run = self.folder / "watched"
        run.mkdir()
        lines = [{"step": step, "time_ms": 3, "rank_pace": [1.6, 1], "rank_wait_ms": [1, 2], "epoch": 1,
                  "alarms": [{"rank": 0, "metric": "pace", "since": 0, "score": 1.6}]} for step in range(8)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        watched = json.loads(self.done("watch", run, "--json"))
        self.assertEqual([rank["alarms"] for rank in watched["ranks"]], [["slowdown"], []])
        self.assertAlmostEqual(watched["ranks"][0]["slowdown"], 1.6)

    def test_the_list_says_where_a_name_holds(self):
        self.assertIn("| `--texts` | `--max-num-seqs` | sluice generate, sluice serve |", self.done("keys", "renamed"))


if __name__ == "__main__":
    unittest.main()
