"""tests/run.py: what is counted, and which tests run again. The tests of these builds are shell commands."""

import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run  # noqa: E402

GOOGLE_TEST = """[ RUN      ] Pack.Fits
[       OK ] Pack.Fits (0 ms)
[ RUN      ] Pack.OnGpu
src/plan/pack_test.cpp:7: Skipped
no GPU
[  SKIPPED ] Pack.OnGpu (0 ms)
[ RUN      ] Pack.Fails
[  FAILED  ] Pack.Fails (1 ms)
[==========] 3 tests from 1 test suite ran. (2 ms total)
"""
UNITTEST = """test_a (t.T.test_a) ... ok
test_b (t.T.test_b) ... skipped 'mpirun is not there: tools/bootstrap --test installs it'
Ran 2 tests in 0.1s

OK (skipped=1)
"""


class Counts(unittest.TestCase):
    def test_google_test_says_what_was_skipped_and_why(self):
        count = run.count_of(GOOGLE_TEST, "Failed")
        self.assertEqual((count.passed, count.failed, count.skipped), (1, 1, collections.Counter({"no GPU": 1})))

    def test_unittest_says_what_bootstrap_would_cure(self):
        count = run.count_of(UNITTEST, "Passed")
        self.assertEqual((count.passed, count.failed, count.skipped.total(), count.curable()), (1, 0, 1, 1))

    def test_what_bootstrap_cannot_install_is_not_curable(self):
        count = run.Count(skipped=collections.Counter({"built without CUDA, whose compiler tools/bootstrap does not install": 2}))
        self.assertEqual(count.curable(), 0)

    def test_a_program_that_crashes_has_failed(self):
        self.assertEqual(run.count_of("[ RUN      ] Pack.Fits\n", "Failed").failed, 1)
        self.assertEqual(run.count_of("", "Timeout").failed, 1)

    def test_the_last_line_counts_all(self):
        stood = {"plan": run.Count(5, 0, collections.Counter({"no GPU": 1}))}
        lines = run.told(run.Count(2, 0, collections.Counter({"no GPU": 1})), stood, 0)
        self.assertEqual(lines[0], "skipped: 2 x no GPU")
        self.assertEqual(lines[-1], "2 passed, 0 failed, 2 skipped")


class Runs(unittest.TestCase):
    """Real runs of ctest. Each test of a build writes a line to ran.log."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-run-")
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name).resolve()
        (self.build / "data").mkdir()
        (self.build / "data/one").write_text("1")
        self.tests = {}

    def declare(self, name, command="true", inputs=("data",), **properties):
        """A test of the build; inputs: what it declares, None: nothing."""
        if inputs is not None:
            properties["REQUIRED_FILES"] = ";".join(str(self.build / path) for path in inputs)
        script = f"echo {name} >>{self.build}/ran.log; {command}"
        lines = [f'add_test("{name}" "/bin/sh" "-c" "{script}")']
        lines += [f'set_tests_properties("{name}" PROPERTIES {key} "{value}")' for key, value in properties.items()]
        self.tests[name] = "\n".join(lines)

    def says(self, name, *lines):
        """A test that passes and prints these lines."""
        (self.build / name).write_text("\n".join(lines) + "\n")
        self.declare(name, f"cat {self.build / name}")

    def run_tests(self, *arguments, expect=0, **variables):
        """What ran, and run.py's last line."""
        (self.build / "CTestTestfile.cmake").write_text("\n".join(self.tests.values()) + "\n")
        (self.build / "ran.log").unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if name != "CI"} | variables
        done = subprocess.run([sys.executable, "-B", run.__file__, "--build", self.build, *arguments], env=environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        ran = (self.build / "ran.log").read_text().split() if (self.build / "ran.log").exists() else []
        return sorted(ran), done.stdout.splitlines()

    def ran(self, *arguments, **options):
        return self.run_tests(*arguments, **options)[0]

    def test_a_passed_test_stands_until_an_input_changes(self):
        self.declare("reads_data")
        (self.build / "more").mkdir()
        self.declare("reads_more", inputs=("data", "more"))
        self.assertEqual(self.ran(), ["reads_data", "reads_more"])
        ran, lines = self.run_tests()
        self.assertEqual((ran, lines[-1]), ([], "0 passed, 0 failed, 0 skipped"))
        os.utime(self.build / "data/one")  # the same content, written anew
        self.assertEqual(self.ran(), [])
        (self.build / "more/new").write_text("appeared")
        self.assertEqual(self.ran(), ["reads_more"])
        (self.build / "data/two").write_text("2")
        self.assertEqual(self.ran(), ["reads_data", "reads_more"])

    def test_a_changed_command_environment_or_variable_is_an_input(self):
        self.declare("one", ENVIRONMENT="A=1")
        self.ran()
        self.declare("one", ENVIRONMENT="A=2")
        self.assertEqual(self.ran(), ["one"])
        self.declare("one", "true true", ENVIRONMENT="A=2")
        self.assertEqual(self.ran(), ["one"])
        self.assertEqual(self.ran(OMP_NUM_THREADS="3"), ["one"])
        self.assertEqual(self.ran(OMP_NUM_THREADS="3"), [])

    def test_threads_that_wait_sleep_unless_the_environment_says_otherwise(self):
        self.declare("one", f"echo $OMP_WAIT_POLICY >>{self.build}/ran.log")
        undecided = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        with unittest.mock.patch.dict(os.environ, undecided, clear=True):
            self.assertEqual(self.ran(), ["one", "passive"])
            self.assertEqual(self.ran(OMP_WAIT_POLICY="active"), ["active", "one"])

    def test_a_program_that_the_environment_names_is_an_input(self):
        (self.build / "program").write_text("1")
        self.declare("one", ENVIRONMENT=f"SLUICE={self.build}/program")
        self.ran()
        (self.build / "program").write_text("2")
        self.assertEqual(self.ran(), ["one"])

    def test_a_test_whose_inputs_nobody_declared_always_runs(self):
        self.declare("unknown", inputs=None)
        self.assertEqual(self.ran(), ["unknown"])
        self.assertEqual(self.ran(), ["unknown"])

    def test_what_failed_or_was_skipped_runs_again(self):
        self.declare("fails", "false")
        self.declare("skips", "echo skipped: no GPU; exit 77", SKIP_RETURN_CODE=77)
        self.declare("passes")
        self.ran(expect=1)
        ran, lines = self.run_tests(expect=1)
        self.assertEqual(ran, ["fails", "skips"])
        self.assertEqual(lines[-1], "0 passed, 1 failed, 1 skipped")

    def test_a_test_that_fails_loses_its_stamp(self):
        self.declare("one", "test ! -e broken", WORKING_DIRECTORY=self.build)
        self.ran()
        (self.build / "broken").write_text("")  # not declared, as it should be
        self.ran("--all", expect=1)
        (self.build / "broken").unlink()
        self.assertEqual(self.ran(), ["one"])

    def test_of_all_a_few_that_failed_are_tried_again_and_named(self):
        self.declare("fails_once", "mkdir again || exit 0; false", WORKING_DIRECTORY=self.build)
        self.declare("fails", "false")
        ran, lines = self.run_tests("--all", expect=1)
        self.assertEqual(ran, ["fails", "fails", "fails_once", "fails_once"])
        self.assertIn("failed, and passed at a second try: fails_once", lines)
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")
        del self.tests["fails"]
        (self.build / "again").rmdir()
        self.assertEqual(self.run_tests("--all")[1][-1], "1 passed, 0 failed, 0 skipped")

    def test_skipped_cases_of_a_passed_test_are_still_shown(self):
        self.says("one", "test_a ... skipped 'no GPU'", "Ran 3 tests in 1s")
        self.ran()
        ran, lines = self.run_tests()
        self.assertEqual(ran, [])
        self.assertIn("skipped: 1 x no GPU", lines)
        self.assertEqual(lines[-1], "0 passed, 0 failed, 1 skipped")

    def test_what_bootstrap_would_cure_has_no_stamp_and_fails_where_ci_is_set(self):
        self.says("one", "test_a ... skipped 'no CBC: tools/bootstrap --test installs it'", "Ran 3 tests in 1s")
        self.assertEqual(self.ran(), ["one"])
        self.assertEqual(self.ran(CI="1", expect=1), ["one"])

    def test_an_input_that_changes_meanwhile_leaves_no_stamp(self):
        self.declare("writes", f"echo x >>{self.build}/data/one")
        self.assertEqual(self.ran(), ["writes"])
        self.assertEqual(self.ran(), ["writes"])

    def test_all_runs_everything_and_whole_tables_in_place_of_samples(self):
        self.declare("one")
        self.declare("drawn", LABELS="sample")
        self.tests["whole"] = 'if(CTEST_CONFIGURATION_TYPE MATCHES "^(all)$")\n' \
            f'add_test(whole "/bin/sh" "-c" "echo whole >>{self.build}/ran.log")\n' \
            'set_tests_properties(whole PROPERTIES LABELS "other;table")\nendif()'
        self.assertEqual(self.ran(), ["drawn", "one"])
        self.assertEqual(self.ran("--all"), ["one", "whole"])
        self.assertEqual(self.ran("--all", "--sample"), ["drawn", "one"])

    def test_a_sample_stands_with_its_seed_alone(self):
        self.declare("drawn", "echo $SLUICE_SEED >>seeds", LABELS="sample", WORKING_DIRECTORY=self.build)
        self.declare("one")
        lines = self.run_tests("--seed", "7")[1]
        self.assertIn("seed 7 draws the samples: make test SEED=7 draws them again", lines)
        self.assertEqual((self.build / "seeds").read_text(), "7\n")
        self.assertEqual(self.ran("--seed", "7"), [])
        self.assertEqual(self.ran("--seed", "8"), ["drawn"])

    def test_another_program_draws_another_sample(self):
        self.declare("drawn", LABELS="sample")
        self.ran()
        self.assertEqual(self.ran(), [])
        (self.build / "sluice").write_text("another program")
        self.assertEqual(self.ran(), ["drawn"])

    def test_only_some_are_asked_for(self):
        self.declare("plan")
        self.declare("cli/plan")
        self.assertEqual(self.ran("--only", "^plan"), ["plan"])
        self.assertEqual(self.ran(), ["cli/plan"])


if __name__ == "__main__":
    unittest.main()
