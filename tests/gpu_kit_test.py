"""How tools/gpu_kit goes through its steps, with steps that need no GPU."""

import fnmatch
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"
sys.path.insert(0, str(TOOLS))
import gpu_kit_pack as pack  # noqa: E402
import gpu_kit_runs as runs  # noqa: E402
import gpu_kit_steps as steps  # noqa: E402

loader = importlib.machinery.SourceFileLoader("gpu_kit", str(TOOLS / "gpu_kit"))
gpu_kit = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_kit", loader))
loader.exec_module(gpu_kit)


def step(name, shell, seconds=20, judge=steps.judge_status):
    return steps.Step(name, lambda context: ["sh", "-c", shell], seconds, judge)


class Kit(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.file = pathlib.Path(self.folder.name) / "results.jsonl"
        self.context = types.SimpleNamespace(folder=pathlib.Path(self.folder.name), environment={"PATH": "/usr/bin:/bin"})

    def tearDown(self):
        self.folder.cleanup()

    def call(self, wanted, minutes=9):
        """What is in the file behind a call, by step; and whether the call came to the end."""
        finished = gpu_kit.run_steps(wanted, self.context, gpu_kit.Results(self.file, self.file), minutes)
        lines = list(map(json.loads, self.file.read_text().splitlines())) if self.file.exists() else []
        return finished, {line["step"]: line["outcome"] for line in lines if "outcome" in line}, lines

    def test_second_call_goes_on_where_the_first_stopped(self):
        marks = pathlib.Path(self.folder.name) / "marks"
        wanted = [step("first", f"echo first >> {marks}"), step("long", f"echo long >> {marks}", 60)]
        self.assertEqual(self.call(wanted, minutes=0.75)[:2], (False, {"first": "passed"}))
        self.assertEqual(self.call(wanted)[:2], (True, {"first": "passed", "long": "passed"}))
        self.assertEqual(marks.read_text().split(), ["first", "long"])

    def test_shorter_steps_do_not_wait_for_one_that_does_not_fit(self):
        wanted = [step("long", "true", 60), step("short", "true", 5)]
        self.assertEqual(self.call(wanted, minutes=0.5)[:2], (False, {"short": "passed"}))

    def test_every_step_fits_into_a_call(self):
        for one in [*steps.test_steps(), *steps.sanitizer_steps(), *steps.bench_steps(), *steps.build_steps()]:
            self.assertLessEqual(one.seconds, 9 * 60, one.name)

    def test_killed_step_keeps_the_lines_that_it_printed(self):
        _, outcomes, lines = self.call([step("slow", """echo '{"ms": 3}'; exec sleep 30""", 1)])
        self.assertEqual(outcomes, {"slow": "timed out"})
        self.assertEqual(lines[0], {"step": "slow", "line": {"ms": 3}})

    def test_tests_that_skip_or_do_not_run_have_not_passed(self):
        for output, outcome in (("[  SKIPPED ] 1 test", "skipped"), ("[  PASSED  ] 0 tests.", "ran nothing"),
                                ("[  PASSED  ] 3 tests.", "passed")):
            self.assertEqual(steps.judge_tests(0, output), outcome)
        self.assertEqual(steps.judge_tests(1, "[  PASSED  ] 3 tests."), "failed (1)")

    def test_measurement_without_figures_has_failed(self):
        self.assertEqual(steps.judge_measurement(0, "no GPU\n"), "failed (1)")
        self.assertEqual(steps.judge_measurement(0, 'warm\n{"ms": 1}\n'), "measured")

    def test_each_part_takes_five_minutes_at_most(self):
        for part in (steps.first_part(), steps.second_part()):
            self.assertLessEqual(sum(one.seconds for one in part), steps.PART_SECONDS)
            self.assertEqual(len({one.name for one in part}), len(part))

    def rehearsed(self, *verbs):
        done = subprocess.run([sys.executable, TOOLS / "gpu_kit", *verbs, "--dry-run", "--programs", self.folder.name],
                              capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": self.folder.name})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def stand_in_for_torch(self):
        package = pathlib.Path(self.folder.name) / "torch"
        package.mkdir()
        (package / "__init__.py").write_text("")

    def test_the_parts_reach_every_feature_and_every_kind_of_layer(self):
        """What the sources list is what the filters of the steps match."""
        self.stand_in_for_torch()
        said = self.rehearsed("first", "second")
        filters = [pattern for line in re.findall(r"--gtest_filter=(\S+)", said) for pattern in line.split(":")]
        reached = lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in filters)  # noqa: E731
        source = (ROOT / "src/runtime/test_features.cpp").read_text()
        features = re.findall(r'^    \{"(\w+)",$', source, re.MULTILINE)
        self.assertGreaterEqual(set(features), {"Experts", "DividedExperts", "GatedDeltaLayersBesideAttention", "LatentAttention",
                                                "PullInDifferences", "PushInEightBits", "MomentsOfEightBits", "SharedParameters"})
        for feature in features:
            self.assertTrue(reached(f"DeviceExecutor/RunsOfFeatures.TrainOnAGpuAsOneRankOnTheCpu/{feature}"), feature)
        suites = re.findall(r"INSTANTIATE_TEST_SUITE_P\((\w+), Families,", (ROOT / "src/layers/model_test.cpp").read_text())
        self.assertEqual(set(suites), set(steps.EVERY_KIND))
        for suite in suites:
            self.assertTrue(reached(f"{suite}/Families.OnAGpuEqualAutograd/Any"), suite)
        for run in ("generates", "reinforces", "learns", "offload"):
            self.assertIn(f"gpu_kit_runs.py {run} ", said)

    def test_a_page_says_how_each_step_ended(self):
        self.call([step("first", "true"), step("second", """echo '{"ms": 3}'; false""")])
        page = (pathlib.Path(self.folder.name) / "bench/results/device.md").read_text()
        self.assertIn("| first | passed |", page)
        self.assertIn("| second | failed (1) |", page)
        self.assertIn('- second: `{"ms": 3}`', page)

    def test_every_step_has_its_own_name(self):
        names = [one.name for one in [*steps.test_steps(), *steps.sanitizer_steps(), *steps.bench_steps()]]
        self.assertEqual(len(names), len(set(names)))

    def test_nodes_of_a_step_are_held_against_their_predictions(self):
        events = [{"ph": "X", "cat": cat, "name": name, "ts": 0, "dur": dur, "args": {"predicted_ns": predicted}}
                  for cat, name, dur, predicted in (("forward", "F0", 100, 80_000), ("forward", "F1", 60, 80_000),
                                                    ("push", "P", 7, 0))]
        kinds, worst = runs.node_ratios(events)
        self.assertEqual(kinds, {"forward": [0.16, 1.0]})
        self.assertEqual((worst["node"], worst["off_us"]), ("F0", 20))

    def test_lengths_become_a_corpus(self):
        folder = pathlib.Path(self.folder.name)
        lengths = folder / "lengths.txt"
        lengths.write_text("3\n70000\n1\n")
        with unittest.mock.patch.object(runs, "LENGTHS", lengths):
            prefix = runs.Runs("sluice", folder).make_measured_lengths()
        index = prefix.with_suffix(".idx").read_bytes()
        self.assertEqual(struct.unpack("<9sQBQQ", index[:34]), (b"MMIDIDX\0\0", 1, 8, 3, 4))
        self.assertEqual(struct.unpack("<3i3q4q", index[34:]), (3, 16384, 2, 0, 6, 32774, 0, 1, 2, 3))
        self.assertEqual(prefix.with_suffix(".bin").stat().st_size, 2 * (3 + 16384 + 2))

    def test_a_run_beside_a_published_figure_has_that_models_shape(self):
        folder = pathlib.Path(self.folder.name)
        lines = [{"loss": 1, "tokens_per_s": rate, "peak_bytes": 7} for rate in (1, 1, 40_000, 50_000, 60_000)]
        for model, published in runs.PUBLISHED_LORA.items():
            with (unittest.mock.patch.object(runs.Runs, "train", return_value=lines) as trained,
                  unittest.mock.patch.object(runs, "finish", side_effect=lambda right, figures: figures)):
                figures = runs.adapts(runs.Runs("sluice", folder), model)
            self.assertEqual((figures["tokens_per_s"], figures["ratio"]), (45_000, 45_000 / published))
            shape = json.loads((pathlib.Path(trained.call_args.args[2]["model.hf"]) / "config.json").read_text())
            self.assertEqual((shape["model_type"], shape["num_hidden_layers"]), ("qwen3", 28 if "0.6b" in model else 36))

    def test_what_building_needs_travels(self):
        packages = re.search(r"^packages=\((.*?)\)", (TOOLS / "bootstrap").read_text(), re.MULTILINE | re.DOTALL)[1]
        done_without = {"python3-dev", "libcurl4-openssl-dev"}  # what is built there knows no s3://
        libraries = {name for name in packages.split() if name.endswith("-dev")} - done_without
        self.assertEqual(libraries - set(pack.PACKAGES), set())

    def test_overlap_is_the_share_of_transfers_under_cells(self):
        events = [{"ph": "X", "cat": cat, "ts": begin, "dur": end - begin}
                  for cat, begin, end in (("forward", 0, 10), ("offload", 5, 15), ("backward", 20, 30), ("fetch", 20, 30))]
        self.assertEqual(runs.overlap(events), 0.75)
        self.assertIsNone(runs.overlap([]))


if __name__ == "__main__":
    unittest.main()
