"""sluice.integrations.balancer: complete, even, the same on every rank."""

import itertools
import pickle
import unittest

import numpy as np
import sluice
from lengths import lengths_of
from sluice.integrations import balancer
from sluice.integrations.balancer import Balancer, StepBatches, equal_parts, even_counts

CALIBRATION = "a800-7b"


def flat(nested):
    return sorted(itertools.chain.from_iterable(nested))


class BalancerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.balancer = Balancer("<4,1,1>", calibration=CALIBRATION)

    def test_every_sequence_has_one_rank_and_every_rank_a_sequence(self):
        for count, ranks, seed in itertools.product([8, 9, 40], [1, 3, 8], range(3)):
            planned = self.balancer.micro_batches(lengths_of(count, seed), ranks)
            self.assertEqual(len(planned), ranks)
            self.assertEqual(flat(micro_batch for rank in planned for micro_batch in rank), list(range(count)))
            for rank in planned:
                self.assertTrue(rank)
                self.assertTrue(all(rank))

    def test_ranks_that_the_plan_leaves_idle_get_the_shortest_sequences(self):
        planned = self.balancer.micro_batches([1] * 8, 8)
        self.assertEqual([len(rank) for rank in planned], [1] * 8)

    def test_fewer_sequences_than_ranks_are_refused(self):
        for find in (lambda: self.balancer.micro_batches([5, 6], 3), lambda: self.balancer.parts([5, 6], 3),
                     lambda: StepBatches([5] * 10, self.balancer, 2, 3)):
            with self.assertRaisesRegex(sluice.InputError, "2 sequences leave some of 3 ranks"):
                find()

    def test_schemes_with_lanes_and_other_texts_are_refused(self):
        for scheme in ("<4,1,2>", "<4,1>", "4", "<a,1,1>", "<0,1,1>"):
            with self.assertRaisesRegex(sluice.InputError, "scheme is"):
                Balancer(scheme, calibration=CALIBRATION)

    def test_a_pickled_one_plans_alike(self):
        copy = pickle.loads(pickle.dumps(self.balancer))
        lengths = lengths_of(40)
        self.assertEqual(copy.micro_batches(lengths, 4, 7), self.balancer.micro_batches(lengths, 4, 7))

    def test_times_are_those_of_the_plan(self):
        plan = self.balancer.planner(1).plan([3000])
        self.assertAlmostEqual(self.balancer.times.of([3000]), plan.estimated_ns, delta=2)


class MeasuredTest(unittest.TestCase):
    TIMES = sluice.StageTimes(a=2.0, b=30_000.0, c=5_000_000)

    def test_plans_follow_measured_times_and_the_most_tokens(self):
        for scheme in ("<1,1,1>", "<4,1,1>", "<2,3,1>"):
            measured = Balancer(scheme, times=self.TIMES, max_tokens=1000)
            self.assertEqual(measured.planner(2).max_len, 1000)
            self.assertAlmostEqual(measured.planner(2).stage_times(scheme).b, self.TIMES.b, places=3)
            for rank in measured.micro_batches([900, 200, 300, 400, 600, 500, 100, 100], 2):
                self.assertGreater(len(rank), 1, "more tokens than a micro-batch holds")
        with self.assertRaises(sluice.InfeasibleError):
            measured.micro_batches([1001, 5], 2)
        copy = pickle.loads(pickle.dumps(measured))
        self.assertEqual(copy.micro_batches([900, 200, 300], 2), measured.micro_batches([900, 200, 300], 2))

    def test_half_of_it_is_refused(self):
        for arguments in ({"times": self.TIMES}, {"max_tokens": 5}):
            with self.assertRaisesRegex(sluice.InputError, "belong together"):
                Balancer("<1,1,1>", **arguments)
        with self.assertRaisesRegex(sluice.InputError, "max_tokens is 0"):
            Balancer("<1,1,1>", times=self.TIMES, max_tokens=0)

    def test_times_that_grow_with_tokens_alone_are_balanced_too(self):  # as short probes fit them
        even = Balancer("<1,1,1>", times=sluice.StageTimes(a=0.0, b=30_000.0, c=0), max_tokens=1000)
        self.assertEqual(sorted(sum(lengths) for lengths in (
            [[900, 500, 600][place] for each in rank for place in each] for rank in even.micro_batches([900, 500, 600], 2))),
            [900, 1100])
        for times in (sluice.StageTimes(a=0.0, b=0.0, c=5), sluice.StageTimes(a=2.0, b=-1.0, c=0)):
            with self.assertRaisesRegex(sluice.InputError, "prices: (b is -1 ns|.* measure longer micro-batches)"):
                Balancer("<1,1,1>", times=times, max_tokens=1000)

    def test_a_fit_finds_the_times(self):
        micro_batches = [[100], [5000], [100] * 50, [1000, 2000]]
        found = sluice.StageTimes.fit(micro_batches, [self.TIMES.of(each) for each in micro_batches])
        for name in ("a", "b", "c"):
            self.assertAlmostEqual(getattr(found, name) / getattr(self.TIMES, name), 1, places=6)

    def test_no_fitted_time_is_negative(self):
        found = sluice.StageTimes.fit([[100], [200], [400]], [1e6, 1.9e6, 3.7e6])
        self.assertGreaterEqual(min(found.a, found.b, found.c), 0)
        self.assertAlmostEqual(found.of([200]) / 1.9e6, 1, delta=0.1)


class EqualPartsTest(unittest.TestCase):
    def check_against_all(self, times, ranks):
        parts = equal_parts(np.array(times), ranks)
        self.assertEqual({len(part) for part in parts}, {len(times) // ranks})
        self.assertEqual(flat(parts), list(range(len(times))))
        best = min(max(sum(times[place] for place in order[first::ranks]) for first in range(ranks))
                   for order in itertools.permutations(range(len(times))))
        return max(sum(times[place] for place in part) for part in parts) / best

    def test_is_near_the_best(self):
        ratios = [self.check_against_all(lengths_of(6, seed), ranks) for seed in range(10) for ranks in (2, 3)]
        self.assertLess(max(ratios), 1.1)
        self.assertLess(sum(ratios) / len(ratios), 1.01)

    def test_one_part_is_everything(self):
        self.assertEqual(equal_parts(np.array([3, 1, 2]), 1), [[0, 1, 2]])


class EvenCountsTest(unittest.TestCase):
    PLANNED = [[[0], [1], [2]], [[3, 4, 5, 6]], [[7]]]

    def test_micro_batches_are_cut_and_empty_ones_follow(self):
        even = even_counts(self.PLANNED)
        self.assertEqual(even, [[[0], [1], [2]], [[3], [4], [5, 6]], [[7], [], []]])

    def test_a_number_that_is_given_holds_for_all(self):
        self.assertEqual([len(rank) for rank in even_counts(self.PLANNED, 5)], [5] * 3)
        with self.assertRaisesRegex(sluice.InputError, "needs 3 micro-batches but 2"):
            even_counts(self.PLANNED, 2)


class StepBatchesTest(unittest.TestCase):
    def test_plans_once_while_it_is_remembered(self):
        steps = StepBatches(lengths_of(100), Balancer("<4,1,1>", calibration=CALIBRATION), 8, 2)
        self.assertIs(steps[3], steps[3])
        self.assertEqual(len(steps), 12)
        for step in range(len(steps)):
            self.assertEqual(flat(micro_batch for rank in steps[step] for micro_batch in rank),
                             list(range(8 * step, 8 * step + 8)))
        self.assertLessEqual(len(steps._kept), balancer.StepBatches.KEPT)
        with self.assertRaises(IndexError):
            steps[12]


if __name__ == "__main__":
    unittest.main()
