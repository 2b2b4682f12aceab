"""Faults whose trials check more than what all trials check: test cases of tests/integration and tests/cli, each a row of the
table. A row's expectations stand in its test. Tests of one process share the runs that nothing disturbs."""

import os
import pathlib
import re
import sys
import unittest

from job import PROGRAM, Broken

os.environ.setdefault("SLUICE", PROGRAM)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))

import elastic_test  # noqa: E402
import hybrid_test  # noqa: E402
import kills_test  # noqa: E402
import model_commands_test  # noqa: E402
import reinforcement_test  # noqa: E402
import serve_bounds_test  # noqa: E402
import survival_test  # noqa: E402
import watching_test  # noqa: E402
import compressed_communication_test  # noqa: E402
from fault import Group  # noqa: E402
from fault_injection import Skipped  # noqa: E402

# By group: suites, each with the launcher of its ranks and a pattern of its tests that strike something.
SUITES = {"kills": ((kills_test.Kills, "sluice", ""),),
          "elastic runs": ((elastic_test.Elastic, "sluice", ""),),
          "survival": ((survival_test.ByHand, "by hand", ""), (survival_test.Mpirun, "mpirun", ""),
                       (survival_test.Slurm, "srun", ""), (survival_test.Torchrun, "torchrun", "")),
          "experts and recurrent layers": ((hybrid_test.Hybrid, "sluice", "lost_rank"),),
          "rollouts": ((reinforcement_test.Reinforcement, "sluice", "lost_rank|resumed|reward_that_fails|go(es)?_on_without"),),
          "coded transfers": ((compressed_communication_test.Wire, "sluice", "lost_rank|resume|when_a_save_ends"),),
          "slow ranks": ((watching_test.Watching, "sluice", ""),),
          "generate": ((model_commands_test.ModelCommands, "sluice", "generation_that_was_ended"),),
          "serve": ((serve_bounds_test.Ending, "sluice", ""), (serve_bounds_test.Bounds, "sluice", "leave|slow|without_an_end"))}
# Only rows of the table; the other suites are tests of `make test` too, which runs them whole.
ROWS_ALONE = frozenset(("kills", "elastic runs", "survival"))
RUN_WHOLE = frozenset(SUITES) - ROWS_ALONE


def strike(suite, method):
    def run(trial):
        trial.checks_itself()
        result = unittest.TestResult()
        unittest.TestSuite([suite(method)]).run(result)
        for _, why in result.skipped:
            raise Skipped(why)
        for _, why in result.errors + result.failures:
            raise Broken(why)
    return run


def group_of(name, suites):
    group = Group(name)
    for suite, launcher, strikes in suites:
        methods = [name for name in unittest.TestLoader().getTestCaseNames(suite) if re.search(strikes, name)]
        if not methods:
            raise LookupError(f"no test of {suite.__name__} has {strikes} in its name")
        for method in methods:
            group.add(method.removeprefix("test_").replace("_", " "), ("run",), "what its test says", strike(suite, method),
                      launcher)
    return group


GROUPS = [group_of(name, suites) for name, suites in SUITES.items()]
