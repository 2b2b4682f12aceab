"""The Python package: results, errors, threads, and the same plans as the program's."""

import copy
import dataclasses
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np
import sluice

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CODE_LENGTHS = REPOSITORY / "bench/data/code_lengths.txt"
STRATEGIES = ["1x<8,1,1> + 2x<4,1,1>", "4x<4,1,1>", "8x<2,1,1>"]
MACHINE = {"gpus": 16, "calibration": "a800-7b"}


def batch(size=80, context_length=32768, first=0):
    return np.minimum(sluice.lengths(CODE_LENGTHS).values[first:first + size], context_length)


def run_sluice(*arguments):
    if "SLUICE" not in os.environ:
        raise unittest.SkipTest("compares with the program, which SLUICE names")
    done = subprocess.run([os.environ["SLUICE"], *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


class LengthsTest(unittest.TestCase):
    def test_paths_and_arrays_give_the_same(self):
        from_path = sluice.lengths(CODE_LENGTHS)
        self.assertEqual(from_path.values.dtype, np.int32)
        self.assertEqual(from_path.count, from_path.values.size)
        self.assertEqual(from_path.tokens, from_path.values.sum())
        self.assertEqual(from_path.max, from_path.values.max())
        self.assertEqual(sum(bin.count for bin in from_path.histogram), from_path.count)
        from_array = sluice.lengths(from_path.values.astype(np.uint64))
        for field in dataclasses.fields(sluice.Lengths):
            np.testing.assert_array_equal(getattr(from_array, field.name), getattr(from_path, field.name))

    def test_several_paths_count_together(self):
        self.assertEqual(sluice.lengths([CODE_LENGTHS, str(CODE_LENGTHS)]).count, 2 * sluice.lengths(CODE_LENGTHS).count)

    def test_faults_name_file_and_value(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "lengths.txt")
            path.write_text("7\nseven\n")
            with self.assertRaisesRegex(sluice.InputError, "lengths.txt:2: .*seven"):
                sluice.lengths(path)
        with self.assertRaisesRegex(sluice.InputError, "absent"):
            sluice.lengths("absent")


class PackageTest(unittest.TestCase):
    def test_the_version_is_the_projects(self):
        project = re.search(r"project\(sluice VERSION ([\d.]+)", (REPOSITORY / "CMakeLists.txt").read_text())
        self.assertEqual(sluice.__version__, project.group(1))


class ProposeTest(unittest.TestCase):
    ARGUMENTS = {**MACHINE, "context_length": 32768, "tokens_per_step": 100_000}

    def test_the_first_holds_the_context_and_the_seed_decides(self):
        first = sluice.propose(CODE_LENGTHS, **self.ARGUMENTS, seed=3)
        self.assertEqual(first, sluice.propose(batch(10**6, 10**6), **self.ARGUMENTS, seed=3))
        self.assertGreaterEqual(first[0].max_len, 32768)
        self.assertAlmostEqual(sum(proposal.frequency for proposal in first), 1)
        for proposal in first:
            least, most = proposal.longest
            self.assertTrue(least <= most <= proposal.max_len)
        self.assertLessEqual(len(sluice.propose(CODE_LENGTHS, **self.ARGUMENTS, max_strategies=2)), 2)

    def test_equals_the_programs(self):
        for share, told in ((True, ()), (False, ("--no-fsdp",))):
            file = run_sluice("propose", "--gpus", "16", "--calibration", "a800-7b", "--lengths", str(CODE_LENGTHS),
                              "--context", "32768", "--tokens-per-step", "100000", "--json", *told)
            found = sluice.propose(CODE_LENGTHS, **self.ARGUMENTS, fsdp=share)
            self.assertEqual([{**dataclasses.asdict(proposal), "longest": list(proposal.longest)} for proposal in found],
                             file["strategies"])
            self.assertEqual("1x<1,1,16,16>" in (proposal.strategy for proposal in found), share)

    def test_refuses_what_it_cannot_do(self):
        with self.assertRaisesRegex(sluice.InputError, "max_strategies is 0"):
            sluice.propose(CODE_LENGTHS, **self.ARGUMENTS, max_strategies=0)
        with self.assertRaisesRegex(sluice.InputError, "'exact'.*ours or paper"):
            sluice.propose(CODE_LENGTHS, **self.ARGUMENTS, method="exact")
        with self.assertRaisesRegex(sluice.InputError, "max_cp is 4"):
            sluice.propose(CODE_LENGTHS, **self.ARGUMENTS, method="paper", max_cp=4)
        with self.assertRaises(sluice.InfeasibleError):
            sluice.propose(CODE_LENGTHS, **{**self.ARGUMENTS, "context_length": 10**7})


class PlanTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.planner = sluice.Planner(STRATEGIES, **MACHINE)

    def test_every_token_lies_in_one_piece(self):
        lengths = batch()
        plan = self.planner.plan(lengths, step=4)
        self.assertEqual(plan.step, 4)
        self.assertIn(plan.strategy, STRATEGIES)
        self.assertLessEqual(plan.lower_bound_ns, plan.estimated_ns)
        covered = np.zeros(len(lengths), dtype=int)
        for pipeline in plan.pipelines:
            for lane_part in (lane_part for lane in pipeline.lanes for lane_part in lane):
                self.assertLessEqual(lane_part.tokens, pipeline.max_len)
                for piece in lane_part.pieces:
                    covered[piece.sequence] += piece.end - piece.begin
        np.testing.assert_array_equal(covered, lengths)

    def test_is_the_programs_plan(self):
        # Of one strategy: among several the program also weighs pull, push and update on its lengths' batches.
        strategies = STRATEGIES[:1]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "batch.txt")
            path.write_text("\n".join(map(str, batch())))
            file = run_sluice("plan", "--gpus", "16", "--calibration", "a800-7b", "--lengths", str(path), "--json",
                              "--tokens-per-step", "0", *(word for text in strategies for word in ("--strategies", text)))
        planner = sluice.Planner(strategies, **MACHINE)
        plan = planner.plan([sequence["length"] for sequence in file["sequences"]], file["step"],
                            documents=[sequence["document"] for sequence in file["sequences"]])
        for pipeline in file["pipelines"]:
            pipeline.setdefault("stage_layers", [])
            for lane_part in (one for lane in pipeline["lanes"] for one in lane):
                lane_part.setdefault("nested_lanes", None)
                lane_part["pass_"] = lane_part.pop("pass", None)
        self.assertEqual({"schema": file["schema"], **dataclasses.asdict(plan)}, file)

    def test_schemes_may_be_written_by_their_degrees(self):
        numbers, named = (sluice.Planner([text], **MACHINE).plan(batch()) for text in ("2x<2,1,4>", "2x tp2,cp4"))
        self.assertEqual(named, numbers)

    def test_layouts_read_by_their_degrees_and_equal_what_files_have(self):
        plan = sluice.Planner(["1x<2,2,1> + 2x<1,1,4>", "8x<2,1,1>"], **MACHINE).plan(batch(context_length=2048))
        for chosen in (plan.strategy, *(each.strategy for each in plan.candidates), *(each.scheme for each in plan.pipelines)):
            self.assertNotRegex(f"{chosen} {chosen!r} {chosen:>40}", "[<>]|1x")
            again = pickle.loads(pickle.dumps(copy.deepcopy(chosen)))
            self.assertEqual((again, str(again), json.loads(json.dumps(again))), (chosen, str(chosen), chosen.file_text))
        self.assertNotIn("<", repr(plan))
        layout = sluice.Layout("1x<4,2,1> + 8x<1,1,1>")
        self.assertEqual((str(layout), repr(layout), layout.file_text),
                         ("tp4,pp2 + 8x tp1", "'tp4,pp2 + 8x tp1'", "1x<4,2,1> + 8x<1,1,1>"))
        self.assertEqual(sluice.Planner([layout], **MACHINE).plan(batch()), sluice.Planner([str(layout)], **MACHINE).plan(batch()))
        self.assertEqual(str(sluice.Layout("<1,1,64>, 8192 tokens a lane")), "cp64, 8192 tokens a lane")

    def test_ranks_get_the_work_of_their_lane(self):
        planner = sluice.Planner(["1x<2,3,1> + 4x<1,1,1>"], gpus=16, model="llama-7b")
        plan = planner.plan(batch(context_length=2048))
        self.assertEqual((plan.pipelines[0].degrees, plan.pipelines[0].fsdp), ((2, 3, 1), 1))
        for rank in range(6):
            self.assertEqual(plan.lane_parts(rank), plan.pipelines[0].lanes[0])
        self.assertEqual(plan.lane_parts(7), plan.pipelines[2].lanes[0])
        self.assertEqual(plan.lane_parts(12), [], "an idle rank")
        self.assertIsNone(plan.pipeline_of(12))
        for rank in (16, 64, -1):
            for index in (plan.lane_parts, plan.pipeline_of):
                with self.assertRaisesRegex(IndexError, f"rank is {rank}: the planner has 16 GPUs"):
                    index(rank)
        self.assertEqual(plan.lane_parts(np.int64(7)), plan.lane_parts(7))
        for rank in (1.5, 7.0, "7"):
            with self.assertRaises(TypeError):
                plan.lane_parts(rank)

    def test_lanes_that_share_parameters_run_together(self):
        planner = sluice.Planner(["2x<1,1,8,4>"], gpus=16, model="llama-7b")
        for pipeline in planner.plan(batch(context_length=8192)).pipelines:
            self.assertEqual((pipeline.degrees, pipeline.fsdp), ((1, 1, 8), 4))
            passes = set()
            for lane in pipeline.lanes:
                numbers = [lane_part.pass_ for lane_part in lane]
                self.assertEqual(numbers, sorted(set(numbers)), "one of a pass at most, in their order")
                passes.update(numbers)
            self.assertEqual(passes, set(range(len(passes))))
            self.assertLess(len(passes), sum(map(len, pipeline.lanes)), "several lanes in a pass")
        apart = sluice.Planner(["2x<1,1,8>"], gpus=16, model="llama-7b").plan(batch(context_length=8192))
        self.assertEqual({one.pass_ for pipeline in apart.pipelines for lane in pipeline.lanes for one in lane}, {None})

    def test_lanes_lie_between_tensor_ranks_and_stages(self):
        pipeline = sluice.Pipeline(scheme="<2,2,3>", max_len=1, ranks=list(range(10, 22)), lanes=[[], [], []])
        self.assertEqual([pipeline.lane_of(rank) for rank in pipeline.ranks], [0, 0, 1, 1, 2, 2] * 2)
        with self.assertRaisesRegex(IndexError, "rank is 9"):
            pipeline.lane_of(9)

    def test_strategies_are_proposals_texts_or_a_file(self):
        proposals = sluice.propose(CODE_LENGTHS, **ProposeTest.ARGUMENTS)
        expected = sluice.Planner(proposals, **MACHINE).plan(batch())
        texts = [proposal.strategy for proposal in proposals]
        self.assertEqual(sluice.Planner(texts, **MACHINE).plan(batch()), expected)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "strategies.txt")
            path.write_text("\n".join(texts))
            self.assertEqual(sluice.Planner(path, **MACHINE).plan(batch()), expected)

    def test_the_published_method_plans_too(self):
        plan = sluice.Planner(STRATEGIES, **MACHINE, method="paper").plan(batch())
        self.assertEqual(plan.lower_bound_ns, 0)
        self.assertGreater(plan.estimated_ns, 0)

    def test_a_pickled_planner_plans_alike(self):
        copy = pickle.loads(pickle.dumps(self.planner))
        self.assertEqual(copy.plan(batch(), 3), self.planner.plan(batch(), 3))

    def test_stages_are_cut_by_time_or_by_their_number_of_layers(self):
        machine = {"gpus": 8, "cluster": "h100x8", "model": "llama-7b"}
        cuts = {by: sluice.Planner(["2x<1,4,1>"], **machine, stages=by).plan([1000, 2000]).pipelines[0].stage_layers
                for by in ("time", "layers")}
        self.assertEqual([sum(cut) for cut in cuts.values()], [32, 32])
        self.assertEqual(set(cuts["layers"]), {8})
        with self.assertRaisesRegex(sluice.InputError, "stages is 'bytes': cut them by time or layers"):
            sluice.Planner(["2x<1,4,1>"], **machine, stages="bytes")

    def test_prices_of_another_program_stand_in_place_of_a_model(self):
        prices = sluice.MeasuredPrices(a=2.0, b=30_000.0, c=5e6, max_tokens=1000)
        planner = sluice.Planner(["1x<1,1,4>", "4x<1,1,1>"], gpus=4, prices=prices)
        self.assertEqual(planner.max_len, 4000)
        self.assertAlmostEqual(planner.stage_times("<1,1,1>").b, 30_000, places=3)
        plan = planner.plan([900, 800, 700, 600])
        self.assertEqual(pickle.loads(pickle.dumps(planner)).plan([900, 800, 700, 600]), plan)
        with self.assertRaisesRegex(sluice.InputError, "in place of model and calibration"):
            sluice.Planner(["1x<1,1,1>"], gpus=1, prices=prices, model="llama-7b")
        with self.assertRaisesRegex(sluice.InputError, "prices: max_tokens is 0"):
            sluice.Planner(["1x<1,1,1>"], gpus=1, prices=sluice.MeasuredPrices(1.0, 1.0, 0.0, 0))

    def test_stage_times_are_the_calibrations(self):
        times = self.planner.stage_times("<4,1,1>")
        self.assertAlmostEqual(times.a, 1.0304334, places=6)
        self.assertAlmostEqual(times.b, 56477.7342, places=3)
        self.assertEqual(times.c, 56697764)
        self.assertEqual(times.of([1000, 2000]), times.of_sequences([1000, 2000]).sum() + times.c)
        with self.assertRaisesRegex(sluice.InputError, "<3,1,1>"):
            self.planner.stage_times("<3,1,1>")

    def test_errors_name_the_value(self):
        for wrong, message in [([], "shape"), ([[1]], "shape"), ([1.5], "float64"), ([5, 0], r"lengths\[1\] is 0"),
                               ([2**40], "1099511627776"), (["a"], "give integers")]:
            with self.assertRaisesRegex(sluice.InputError, message):
                self.planner.plan(wrong)
        with self.assertRaisesRegex(sluice.InputError, "step is -1"):
            self.planner.plan([5], -1)
        for wrong in (2**70, 0.5, None):
            with self.assertRaisesRegex(sluice.InputError, "step is .*: give an integer from 0"):
                self.planner.plan([5], wrong)
        with self.assertRaisesRegex(sluice.InputError, "documents has 1"):
            self.planner.plan([5, 6], documents=[1])
        with self.assertRaisesRegex(sluice.InfeasibleError, "10,000,000 tokens"):
            self.planner.plan([10_000_000])
        for arguments, message in [({"calibration": "a800-7c"}, "a800-7b"), ({"cluster": "a800x9"}, "a800x8"),
                                   ({"method": "best"}, "ours"), ({"gpus": 0}, "gpus is 0"),
                                   ({"gpus": 2**40}, "gpus is 1099511627776"), ({"gpus": "8"}, "gpus is '8'"), ({"gpus": 8}, "16")]:
            with self.assertRaisesRegex(sluice.InputError, message):
                sluice.Planner(STRATEGIES, **{**MACHINE, **arguments})
        self.assertTrue(issubclass(sluice.InputError, ValueError))
        self.assertTrue(issubclass(sluice.InfeasibleError, ValueError))


class SimulateTest(unittest.TestCase):
    ARGUMENTS = {"gpus": 8, "calibration": "a800-7b", "context_length": 16384, "tokens_per_step": 50_000, "max_cp": 1,
                 "steps": 2}

    def test_equals_the_programs(self):
        simulated = sluice.simulate(CODE_LENGTHS, **self.ARGUMENTS, compare=["static"])
        printed = run_sluice("simulate", "--json", "--lengths", CODE_LENGTHS, "--gpus", "8", "--calibration", "a800-7b",
                             "--context", "16384", "--tokens-per-step", "50000", "--max-cp", "1", "--steps", "2",
                             "--compare", "static")
        self.assertEqual(list(simulated.systems), ["sluice", "static"])
        for name, system in simulated.systems.items():
            self.assertIsNone(system.infeasible)
            for field, value in printed["systems"][name].items():
                self.assertEqual(getattr(system, field), value)
        self.assertEqual([(step.system, step.step) for step in simulated.steps],
                         [("sluice", 0), ("sluice", 1), ("static", 0), ("static", 1)])
        for step in simulated.steps:
            self.assertAlmostEqual(sum(step.rank_time_ns.values()) / 8 / 1e6, step.time_ms, places=3)

    def test_strategies_may_be_given(self):
        simulated = sluice.simulate(CODE_LENGTHS, **self.ARGUMENTS, strategies=["1x<8,1,1>"])
        self.assertEqual({step.strategy for step in simulated.steps}, {"1x<8,1,1>"})

    def test_a_system_that_cannot_says_why(self):
        simulated = sluice.simulate([170_000, 4096], gpus=16, calibration="a800-7b", compare="hydraulis", max_cp=8,
                                    steps=1, tokens_per_step=0)
        self.assertIsNone(simulated.systems["sluice"].infeasible)
        self.assertRegex(simulated.systems["hydraulis"].infeasible, "170000|170,000")
        self.assertEqual(simulated.systems["hydraulis"].mean_step_ns, 0)

    def test_errors_name_the_value(self):
        with self.assertRaisesRegex(sluice.InputError, "fastest"):
            sluice.simulate(CODE_LENGTHS, **self.ARGUMENTS, compare=["fastest"])
        with self.assertRaisesRegex(sluice.InputError, "steps is 0"):
            sluice.simulate(CODE_LENGTHS, **{**self.ARGUMENTS, "steps": 0})
        with self.assertRaisesRegex(sluice.InfeasibleError, "1 GPUs cannot hold the model"):
            sluice.simulate(CODE_LENGTHS, **{**self.ARGUMENTS, "gpus": 1})


class ThreadsTest(unittest.TestCase):
    def test_four_threads_plan_alike(self):
        planner = sluice.Planner(STRATEGIES, **MACHINE)
        expected = [planner.plan(batch(first=80 * step), step) for step in range(10)]
        found = [None] * 4

        def plan_all(thread):
            found[thread] = [planner.plan(batch(first=80 * step), step) for step in range(10)]

        threads = [threading.Thread(target=plan_all, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [expected] * 4)

    def test_other_threads_run_while_strategies_are_proposed(self):
        # With so long an interval Python switches threads only where the running one lets go.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        self.addCleanup(sys.setswitchinterval, interval)
        lengths = [int(length) for length in batch(400, 10**6)]
        proposing = threading.Event()

        def propose():
            proposing.set()
            sluice.propose(lengths, gpus=64, calibration="a800-7b", context_length=32768)
            proposing.clear()

        thread = threading.Thread(target=propose)
        thread.start()
        seen = False
        while thread.is_alive() and not seen:
            time.sleep(0.0005)
            seen = proposing.is_set()
        thread.join()
        self.assertTrue(seen, "this thread ran only before and after the proposal")


if __name__ == "__main__":
    unittest.main()
