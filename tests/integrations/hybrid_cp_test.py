"""sluice.integrations.hybrid_cp by itself: what Megatron's loop needs of a schedule, on lengths drawn at random."""

import random
import types
import unittest

import sluice
from hybrid_schedule import step_ns
from sluice.integrations.hybrid_cp import HybridCPScheduler

TIMES = sluice.StageTimes(a=2.0, b=30_000.0, c=50_000)
MOST = 4096


def group_of(ranks):
    return types.SimpleNamespace(size=lambda: ranks)


def scheduler(ranks, times=TIMES):
    return HybridCPScheduler(MOST, group_of(ranks), times)


class HybridCP(unittest.TestCase):
    def test_every_rank_has_samples_whose_ranks_are_a_part_that_megatron_has_groups_of(self):
        source = random.Random(7)
        for ranks in (1, 2, 4, 8, 16):
            own = scheduler(ranks)
            for _ in range(12):
                samples = [(3 * number + 1, min(int(source.lognormvariate(6.5, 1.4)) + 1, MOST * ranks))
                           for number in range(source.choice((1, 2, ranks, 3 * ranks, 40)))]
                groups, ids = own.get_groups_and_subsamples(samples, None)
                self.assertEqual([[len(rank) for rank in group] for group in groups], [[len(rank) for rank in group] for group in ids])
                for group, of_ranks in zip(groups, ids, strict=True):
                    self.assertEqual(len(of_ranks), ranks)
                    for lengths, own_ids in zip(group, of_ranks, strict=True):
                        self.assertTrue(own_ids)
                        self.assertEqual(lengths, [dict(samples)[sample] for sample in own_ids])
                self.assertEqual(sorted({sample for group in ids for rank in group for sample in rank}), [each for each, _ in samples])
                for sample, length in samples:
                    holders = [rank for group in ids for rank, own_ids in enumerate(group) for own_id in own_ids if own_id == sample]
                    width = len(holders)
                    self.assertEqual(holders, list(range(holders[0], holders[0] + width)))
                    self.assertEqual((width & (width - 1), holders[0] % width), (0, 0))
                    self.assertLessEqual(length, width * MOST)
                self.assertGreater(step_ns(ids, dict(samples), TIMES), 0)  # nobody waits for ever

    def test_equal_samples_make_equal_schedules(self):
        samples = [(number, 200 + 37 * number % 3000) for number in range(50)]
        self.assertEqual(scheduler(8).get_groups_and_subsamples(samples), scheduler(8).get_groups_and_subsamples(samples))

    def test_what_cannot_be_is_refused(self):
        with self.assertRaisesRegex(sluice.InputError, "has 6 ranks: give a power of two"):
            scheduler(6)
        with self.assertRaisesRegex(sluice.InputError, "no samples"):
            scheduler(2).get_groups_and_subsamples([])
        with self.assertRaisesRegex(sluice.InfeasibleError, "8193 tokens, but 2 ranks hold 8192: raise max_seqlen_per_dp_cp_rank, which is 4096"):
            scheduler(2).get_groups_and_subsamples([(0, 8193)])


if __name__ == "__main__":
    unittest.main()
