"""sluice.integrations.verl in the place of the released verl's own function, called as its trainers do."""

import types
import unittest

import numpy as np
import sluice
import torch
import verl_balance
from lengths import lengths_of
from sluice.integrations.verl import PartitionByTime, lengths_of as lengths_of_workloads
from verl import DataProto
from verl.trainer.ppo import ray_trainer
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

ARGUMENTS = {"calibration": "a800-7b"}
SHAPES = [(64, 8), (256, 16), (16, 16), (24, 1), (512, 64)]


def workloads(count, seed=1):
    return calculate_workload(torch.tensor(lengths_of(count, seed)))


class PartitionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.partition = PartitionByTime("<4,1,1>", **ARGUMENTS)

    def check(self, partitions, count, ranks):
        self.assertEqual(len(partitions), ranks)
        self.assertEqual(sorted(place for part in partitions for place in part), list(range(count)))
        for part in partitions:
            self.assertTrue(part)
            self.assertEqual(part, sorted(part))
            self.assertTrue(all(type(place) is int for place in part))

    def slowest(self, partitions, lengths):
        times = self.partition.balancer.times.of_sequences(lengths)
        return max(times[part].sum() for part in partitions)

    def test_takes_the_place_of_verls_function(self):
        for count, ranks in SHAPES:
            for equal_size in (True, False):
                arguments = {"k_partitions": ranks, "equal_size": equal_size}
                self.check(self.partition(workloads(count), **arguments), count, ranks)
                self.check(get_seqlen_balanced_partitions(workloads(count), **arguments), count, ranks)

    def test_equal_sizes_are_never_slower_than_verls(self):
        faster = 0
        for count, ranks in SHAPES:
            for seed in range(8):
                lengths = lengths_of(count, seed)
                ours = self.partition(workloads(count, seed), ranks, equal_size=True)
                theirs = get_seqlen_balanced_partitions(workloads(count, seed), ranks, equal_size=True)
                self.assertEqual({len(part) for part in ours}, {count // ranks})
                self.assertLessEqual(self.slowest(ours, lengths), self.slowest(theirs, lengths))
                faster += self.slowest(ours, lengths) < self.slowest(theirs, lengths)
        self.assertGreater(faster, 0)

    def test_the_trainers_hook_spreads_the_batch_by_time(self):
        slowest = [self.slowest_rank_of_the_trainers_hook()]
        self.addCleanup(setattr, ray_trainer, "get_seqlen_balanced_partitions", get_seqlen_balanced_partitions)
        verl_balance.balance_by_time(trainers=[ray_trainer.__name__])
        slowest.append(self.slowest_rank_of_the_trainers_hook())
        self.assertIsInstance(ray_trainer.get_seqlen_balanced_partitions, PartitionByTime)
        self.assertLessEqual(slowest[1], slowest[0])

    def slowest_rank_of_the_trainers_hook(self, ranks=8):
        lengths = torch.tensor(lengths_of(64, most=4096))
        batch = DataProto.from_dict({"attention_mask": (torch.arange(4096) < lengths[:, None]).long()})
        trainer = types.SimpleNamespace(_get_dp_size=lambda *_: ranks, actor_rollout_wg=None)
        ray_trainer.RayPPOTrainer._balance_batch(trainer, batch, metrics := {})
        self.assertTrue(metrics)
        reordered = batch.batch["attention_mask"].sum(-1)
        self.assertEqual(sorted(reordered.tolist()), sorted(lengths.tolist()))
        return max(self.partition.balancer.times.of(part.numpy()) for part in reordered.view(ranks, -1))

    def test_single_precision_workloads_of_the_sft_trainer(self):
        lengths = [1, 2, 511, 131_071, 1_000_000]
        single = calculate_workload(torch.Tensor(lengths))
        np.testing.assert_array_equal(lengths_of_workloads(single.double().numpy()), lengths)

    def test_a_mini_batchs_slice_of_the_workloads(self):  # keep_minibatch
        self.check(self.partition(workloads(64)[16:32], k_partitions=8, equal_size=True), 16, 8)

    def test_lengths_in_the_place_of_workloads_are_noticed(self):
        with self.assertRaisesRegex(sluice.InputError, "values='lengths'"):
            self.partition([700, 800], k_partitions=2, equal_size=True)
        plain = PartitionByTime("<4,1,1>", values="lengths", **ARGUMENTS)
        self.check(plain([700, 800, 20], k_partitions=2, equal_size=False), 3, 2)

    def test_what_verl_asserts_is_an_input_error(self):
        for count, ranks, equal_size in [(2, 3, False), (2, 3, True), (9, 8, True)]:
            with self.assertRaises(AssertionError):
                get_seqlen_balanced_partitions(workloads(count), ranks, equal_size)
            with self.assertRaises(sluice.InputError):
                self.partition(workloads(count), ranks, equal_size)

    def test_rows_without_a_token_are_dealt_out_too(self):
        self.check(self.partition([0] * 8, k_partitions=4, equal_size=True), 8, 4)


if __name__ == "__main__":
    unittest.main()
