"""Faults whose trials check more than what all trials check: test cases of tests/integration, each a row of the table. What a
row wants stands in its test. Tests of one process share the runs that nothing disturbs."""

import unittest

import elastic_test
import kills_test
import survival_test
from fault import Group
from job import Broken
from trial import Skipped

# The suite, and what starts its ranks.
SUITES = {"kills": ((kills_test.Kills, "sluice"),),
          "elastic runs": ((elastic_test.Elastic, "sluice"),),
          "survival": ((survival_test.ByHand, "by hand"), (survival_test.Mpirun, "mpirun"), (survival_test.Slurm, "srun"),
                       (survival_test.Torchrun, "torchrun"))}


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
    for suite, launcher in suites:
        for method in unittest.TestLoader().getTestCaseNames(suite):
            group.add(method.removeprefix("test_").replace("_", " "), ("run",), "what its test says", strike(suite, method),
                      launcher)
    return group


GROUPS = [group_of(name, suites) for name, suites in SUITES.items()]
