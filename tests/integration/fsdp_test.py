"""Lanes that share parameters, end to end: examples/fsdp.toml trains on four ranks and learns what ranks that share
nothing learn; commands that plan take such schemes or say why not."""

import json
import pathlib
import tomllib

from harness import VOCABULARY, TestCase, losses, main, make_documents, merged, records, to_toml, write_corpus

CONTEXT = 512
EXAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "fsdp.toml"


class Shared(TestCase):
    def example(self, run, **changes):
        """The example with the test's corpus, for fewer steps."""
        settings = {section: keys for section, keys in tomllib.loads(EXAMPLE.read_text()).items()}
        changes = {name.replace("__", ".", 1): value for name, value in changes.items()}
        settings = merged(settings, {
            "model.hidden": 32, "model.ffn_hidden": 64, "model.vocab": VOCABULARY, "data.train": [["corpus", 1.0]],
            "data.context_length": CONTEXT, "data.tokens_per_step": 2 * CONTEXT, "train.steps": 12, "train.eval_every": 6,
            "train.threads": 1, "memory.device_gib": 1.0, "memory.margin_gib": 0.1, "checkpoint.every": 0,
            "log.dir": run, "log.tensorboard": False, "log.trace_steps": [1, 2], "parallel.calibration": "analytic",
            **changes})
        (self.directory / f"{run}.toml").write_text(to_toml(settings))
        return self.directory / run

    def setUp(self):
        super().setUp()
        # Long documents among short ones, so that lanes share sequences.
        long = [[(3 * i + 5 * j) % VOCABULARY for i in range(CONTEXT)] for j in range(12)]
        write_corpus(self.directory / "corpus", long + make_documents(count=60, longest=100))

    def planned(self, run, steps):
        """The plans of a run's first steps, as it makes them."""
        outcome = self.finish(self.start([self.program(), "plan", "--config", f"{run}.toml", "--batches", str(steps),
                                          "--json"]))
        self.assertEqual(outcome.status, 0, str(outcome))
        return [json.loads(line) for line in outcome.stdout.splitlines()]

    def test_the_example_has_a_unit_of_every_exchange(self):
        self.example("shared")
        exchanges, passes = set(), 0
        for plan in self.planned("shared", 60):
            for pipeline in plan["pipelines"]:
                batches = [batch for lane in pipeline["lanes"] for batch in lane]
                exchanges.update((pipeline["scheme"].count(",") == 3, batch["exchange"]) for batch in batches)
                passes += sum("pass" in batch for batch in batches)
        self.assertGreater(passes, 0)
        self.assertLessEqual({(True, "ring"), (True, "heads"), (True, "nested")}, exchanges)

    def test_the_example_learns_what_ranks_that_share_nothing_learn(self):
        shared = self.example("shared")
        self.train("shared", 4)
        alone = self.example("alone", parallel__strategies=["4x<1,1,1>"])
        self.train("alone", 4)
        self.assert_close_losses(shared, alone, 1e-4, 1e-2)
        steps = [record for record in records(shared) if "loss" in record]
        self.assertEqual({step["strategy"] for step in steps},
                         {"1x<1,1,4,2>", "1x<1,1,4,4>", "1x<1,1,2,2> + 2x<1,1,1>", "1x<1,2,2,2>"})
        validation = [record["validation_loss"] for record in records(shared) if "validation_loss" in record]
        expected = [record["validation_loss"] for record in records(alone) if "validation_loss" in record]
        self.assertTrue(validation)
        for found, wanted in zip(validation, expected, strict=True):
            self.assertLess(abs(found - wanted), 1e-4 * wanted)
        self.assertLess(losses(shared)[11][0], losses(shared)[0][0])
        steps = [record for record in records(shared) if "loss" in record]
        self.assertTrue(all(step["fsdp_bytes"] > 0 for step in steps))
        for suffix in ("", "-predicted"):
            trace = json.loads((shared / f"trace-2{suffix}.json").read_text())["traceEvents"]
            names = {event["args"]["name"]: event["tid"] for event in trace if event["name"] == "thread_name"}
            moves = {event["cat"] for event in trace if event["ph"] == "X" and event["tid"] == names["fsdp"]}
            self.assertEqual(moves, {"gather", "scatter"})
            # All four lanes, on two nodes: gradients are summed in each before between them.
            trace = json.loads((shared / f"trace-1{suffix}.json").read_text())["traceEvents"]
            labels = [event["name"] for event in trace if event.get("cat") == "scatter" and event["ph"] == "X"]
            between = [label for label in labels if label.startswith("scatter between ")]
            self.assertTrue(between)
            self.assertEqual(len(between) * 2, len(labels))
        self.assertTrue((shared / "report.html").exists())

    def test_commands_plan_and_simulate_strategies_that_share(self):
        lengths = self.directory / "lengths.txt"
        lengths.write_text("\n".join(str(50 + 37 * i % 4000) for i in range(500)))
        common = ["--gpus", "16", "--calibration", "analytic", "--model", "llama-7b", "--lengths", str(lengths),
                  "--context", "4096", "--tokens-per-step", "65536", "--cluster", "a800x8"]
        command = [self.program(), "plan", *common, "--strategies", "2x<1,1,8,8>", "--json"]
        outcome = self.finish(self.start(command))
        self.assertEqual(outcome.status, 0, str(outcome))
        plan = json.loads(outcome.stdout)
        self.assertEqual(plan["strategy"], "2x<1,1,8,8>")
        passes = [batch["pass"] for pipeline in plan["pipelines"] for lane in pipeline["lanes"] for batch in lane]
        self.assertTrue(passes)
        simulate = [self.program(), "simulate", *common, "--strategies", "2x<1,1,8,8>", "--steps", "2", "--json",
                    "--out", str(self.directory / "simulated")]
        outcome = self.finish(self.start(simulate))
        self.assertEqual(outcome.status, 0, str(outcome))

    def test_what_cannot_share_is_refused_in_one_line(self):
        (self.directory / "lengths.txt").write_text("100\n200\n")
        common = ["--gpus", "8", "--calibration", "analytic", "--model", "llama-7b", "--context", "4096"]
        for strategy, fault, status in [
                ("<1,1,8,3>", "fsdp 3 does not divide cp 8, so its lanes make no whole FSDP groups: choose one of "
                 "1, 2, 4, 8", 2), ("<1,1,16,16>", "uses 16 ranks but there are 8", 2)]:
            command = [self.program(), "plan", *common, "--strategies", strategy, "--lengths", "lengths.txt"]
            outcome = self.finish(self.start(command))
            self.assertEqual(outcome.status, status, str(outcome))
            self.assertIn(fault, outcome.stderr)


if __name__ == "__main__":
    main()
