"""What a run plans with, and what becomes of it when planning fails: late long documents, ends that save first, and
plans made elsewhere that are the run's."""

import json
import struct
import tomllib

from harness import (VOCABULARY, TestCase, committed_steps, fallbacks, losses, main, make_documents, records,
                     write_corpus)

LONG = 4000
SELECTED, LANES = "4x<1,1,1>", "1x<1,1,4>"


def walk(length, start=0):
    return [(start + 3 * i) % VOCABULARY for i in range(length)]


class PlanningTest(TestCase):
    def run_program(self, *arguments, expect=0):
        outcome = self.finish(self.start([self.program(), *map(str, arguments)]))
        self.assertEqual(outcome.status, expect, str(outcome))
        return outcome

    def tight(self):
        """Settings under which the long document fits on four lanes and not on one, the strategy that is selected."""
        write_corpus(self.directory / "long", [walk(LONG), walk(40)])
        settings = {"data__context_length": LONG, "memory__margin_gib": 0.0, "memory__recompute": "none",
                    "memory__offload": 0.0, "parallel__select": 0}

        def holds(strategy, gib):
            self.config("trial", **settings, memory__device_gib=gib, data__train=[["long", 1.0]],
                        parallel__strategies=[strategy])
            outcome = self.finish(self.start([self.program(), "plan", "--config", "trial.toml", "--json"]))
            self.assertIn(outcome.status, (0, 3), str(outcome))
            return outcome.status == 0
        gib = 0.01
        while not holds(LANES, gib):
            gib *= 1.15
        self.assertFalse(holds(SELECTED, gib))
        return {**settings, "memory__device_gib": gib, "parallel__strategies": [SELECTED, LANES]}


class Fallback(PlanningTest):
    def test_a_late_long_document_runs_on_lanes_that_were_not_selected(self):
        write_corpus(self.directory / "corpus", make_documents(count=60) + [walk(LONG)])
        run = self.config("run", **self.tight())
        self.train("run", 4, may_fall_back=True)
        steps = [record for record in records(run) if "loss" in record]
        self.assertEqual(len(steps), 8)
        fell_back = [step for step in steps if step["fallback"] is not None]
        self.assertTrue(fell_back)
        for step in fell_back:
            self.assertEqual(step["strategy"], LANES)
            self.assertIn(SELECTED, step["fallback"])
        self.assertIn("own plan", (run / "report.html").read_text())
        self.assertTrue(all(step["strategy"] == SELECTED for step in steps if step["fallback"] is None))

    def test_evaluation_falls_back_as_well(self):
        run = self.config("run", **self.tight(), data__validation=["long"], train__eval_every=4)
        self.train("run", 4, may_fall_back=True)
        evaluations = [record for record in records(run) if "validation_loss" in record]
        self.assertEqual([bool(evaluation["fallback"]) for evaluation in evaluations], [True, True])
        self.assertEqual(len(fallbacks(run)), 2)


class Ends(PlanningTest):
    """A run that planning ends keeps its steps."""

    def break_while_it_runs(self, run, name, **changes):
        """Starts a run and gives all tokens of a corpus, once it is under way, a number that the model does not know; the
        outcome. What is there at the start is looked at before the first step."""
        run = self.config(run, train__steps=100_000, **changes)
        process = self.start_train(run.name, 4)
        self.wait_for_step(run, 4, process)
        corpus = self.directory / f"{name}.bin"
        with open(corpus, "r+b") as tokens:
            tokens.write(struct.pack("<H", VOCABULARY + 1) * (corpus.stat().st_size // 2))
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 2, str(outcome))
        self.assertIn("vocabulary", outcome.stderr)
        return run

    def test_a_step_that_cannot_be_read_saves_those_before(self):
        run = self.break_while_it_runs("run", "corpus")
        done = len(losses(run))
        self.assertGreater(done, 0)
        self.assertEqual(committed_steps(run), [done])

    def test_an_evaluation_that_cannot_be_read_saves_first(self):
        write_corpus(self.directory / "held", [walk(90, start) for start in range(3)])
        run = self.break_while_it_runs("run", "held", data__validation=["held"], train__eval_every=3)
        self.assertEqual(len(losses(run)) % 3, 0)
        self.assertEqual(committed_steps(run), [len(losses(run))])

    def test_tokens_that_the_model_does_not_know_are_refused_before_the_first_step(self):
        for name in ("corpus", "held"):
            write_corpus(self.directory / name, [walk(90, start) for start in range(30)] + [[VOCABULARY + 1] * 90])
            run = self.config(name, data__validation=["held"] if name == "held" else [], train__eval_every=3 if name == "held" else 0)
            self.train(name, 4, expect=2)
            self.assertFalse((run / "metrics.jsonl").exists())
            write_corpus(self.directory / name, [walk(90, start) for start in range(30)])


class Elsewhere(PlanningTest):
    """Plans made without the run are the run's."""

    def test_simulation_proposes_chooses_and_times_as_training_does(self):
        write_corpus(self.directory / "corpus", make_documents(longest=320))
        common = {"data__context_length": 320, "parallel__strategies": "auto", "parallel__select": "best",
                  "memory__host_gib": 1.0}
        for method in ("ours", "paper"):
            with self.subTest(method=method):
                run = self.config(method, **common, parallel__method=method)
                self.train(method, 4)
                self.run_program("simulate", "--config", f"{method}.toml", "--ranks", 4, "--steps", 8, "--calibration",
                                 f"{method}/calibration.json", "--out", f"{method}-simulated")
                simulated = records(self.directory / f"{method}-simulated")
                trained = records(run)
                self.assertEqual([step["strategy"] for step in simulated], [step["strategy"] for step in trained])
                for one, other in zip(simulated, trained, strict=True):
                    self.assertAlmostEqual(one["time_ms"], other["predicted_ms"], delta=1e-6 * one["time_ms"])

    def test_plan_is_the_first_steps_also_where_it_falls_back(self):
        write_corpus(self.directory / "corpus", [walk(LONG)] * 3)
        run = self.config("run", **self.tight(), train__steps=1)
        outcome = self.run_program("plan", "--config", "run.toml", "--json")
        self.assertIn("fall back", outcome.stderr)
        self.train("run", 4, may_fall_back=True)
        self.assertEqual(json.loads(outcome.stdout)["strategy"], records(run)[0]["strategy"])

    def test_dry_run_and_plan_are_for_the_configured_cluster(self):
        model = {"model__layers": 32, "model__hidden": 4096, "model__heads": 32, "model__kv_heads": 8,
                 "model__ffn_hidden": 14336, "model__vocab": 128256}
        self.config("big", **model, parallel__strategies="auto", parallel__select="best", train__dtype="bfloat16",
                    memory__device_gib=0.0)
        for arguments in (["plan", "--config", "big.toml", "--set", "cluster.preset=h100x8", "--json"],
                          ["train", "--config", "big.toml", "--dry-run", "--cluster", "h100x8"]):
            outcome = self.run_program(*arguments)
            self.assertRegex(outcome.stdout, r"(tp|cp|fsdp)\d|<\d")
        plan = json.loads(self.run_program("plan", "--config", "big.toml", "--set", "cluster.preset=h100x8",
                                           "--json").stdout)
        simulated = json.loads(self.run_program("simulate", "--config", "big.toml", "--set", "cluster.preset=h100x8",
                                                "--steps", 1, "--json").stdout)["systems"]["sluice"]
        self.assertEqual(sum(len(pipeline["ranks"]) for pipeline in plan["pipelines"]), 8)
        self.assertLess(plan["estimated_ns"], simulated["mean_step_ns"])
        refused = self.run_program("train", "--config", "big.toml", "--dry-run", "--cluster", "h100x9", expect=2)
        self.assertIn("h100x8", refused.stderr)


class Start(PlanningTest):
    def test_lanes_are_refused_before_the_first_step_where_the_method_knows_none(self):
        run = self.config("run", parallel__strategies=["4x<1,1,1>", "<1,1,4>"], parallel__method="paper")
        outcome = self.train("run", 4, expect=2)
        self.assertIn("'1x<1,1,4>' has lanes, which method paper does not know", outcome.stderr)
        self.assertFalse((run / "metrics.jsonl").exists())

    def test_auto_on_resume_proposes_unless_the_same_was_proposed(self):
        run = self.config("run", parallel__strategies=["<1,1,4>"], parallel__select="best", checkpoint__every=4,
                          train__steps=4)
        self.train("run", 4)

        def resumed(steps, **changes):
            self.config("run", parallel__strategies="auto", parallel__select="best", checkpoint__every=4,
                        train__steps=steps, **changes)
            self.train("run", 4, "--resume", "auto")
            return tomllib.loads((run / "config.toml").read_text())["parallel"]
        self.assertFalse(tomllib.loads((run / "config.toml").read_text())["parallel"]["proposed"])
        proposed = resumed(8, parallel__max_cp=1)
        self.assertTrue(proposed["proposed"])
        self.assertNotIn("1x<1,1,4>", proposed["strategies"])
        # A proposal is kept where the same is asked for, whatever the memory is now; else made anew.
        again = resumed(12, parallel__max_cp=1, memory__device_gib=0.9)
        self.assertEqual(again["strategies"], proposed["strategies"])
        self.assertEqual(resumed(16, parallel__max_cp=2)["max_cp"], 2)


if __name__ == "__main__":
    main()
