"""sluice.integrations.slime inside the released miles (slime's fork): its rollout manager deals, its trainer cuts.

Generation is not part of it: what the rollout manager imports of sglang is stood in for.
"""

import importlib.abc
import importlib.machinery
import sys
import types
import unittest
from unittest import mock

import numpy as np
import sluice
import torch
from lengths import lengths_of
from sluice.integrations.balancer import Balancer
from sluice.integrations.slime import ScheduleByTime

RANKS, STEP, STEPS, CAP = 4, 64, 2, 9216


class NoGeneration(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        generates = name.split(".")[0] == "sglang" or name.startswith("miles.backends.sglang_utils")
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if generates else None

    def create_module(self, spec):
        return mock.MagicMock(__path__=[])

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, NoGeneration())
import slime_balance  # noqa: E402
from miles.backends.training_utils import data as training, parallel  # noqa: E402
from miles.ray import rollout  # noqa: E402

MANAGER = rollout.RolloutManager.__ray_metadata__.modified_class


def arguments(**values):
    return types.SimpleNamespace(**{
        "balance_data": True, "use_dynamic_batch_size": True, "max_tokens_per_gpu": CAP, "global_batch_size": STEP,
        "use_dynamic_global_batch_size": False, **values})


class MilesTest(unittest.TestCase):
    """A rollout through the manager's and the trainer's own functions, each rank with the others' counts."""

    def setUp(self):
        for module, names in ((rollout, ["get_seqlen_balanced_partitions"]),
                              (training, ["get_seqlen_balanced_partitions", "get_minimum_num_micro_batch_size"])):
            for name in names:
                self.addCleanup(setattr, module, name, getattr(module, name))
        self.lengths = self.rollout(1)
        self.times = Balancer("<4,1,1>", calibration="a800-7b").times

    def rollout(self, seed):
        return np.minimum(np.array(lengths_of(STEPS * STEP, seed)), CAP)

    def deal(self, args):
        manager = types.SimpleNamespace(args=args)
        batch = {"tokens": [np.arange(length) for length in self.lengths], "sample_indices": list(range(len(self.lengths)))}
        with mock.patch.object(rollout.ray, "put", lambda value: value):
            return [box.inner for box in MANAGER._split_train_data_by_dp(manager, batch, RANKS)]

    def cut(self, args, of_ranks, vpp=1, group=None):
        """Of each rank, of each step, its micro-batches of sample numbers, from the trainer's own iterators."""
        shares = [{**share, "total_lengths": [int(self.lengths[place]) for place in share["partition"]]}
                  for share in of_ranks]
        one = parallel.GroupInfo(rank=0, size=1, group=None)
        dealt = parallel.GroupInfo(rank=0, size=RANKS, group=None)
        parallel.set_parallel_state(parallel.ParallelState(
            intra_dp=dealt, intra_dp_cp=dealt, cp=one, tp=one, pp=one, ep=one, etp=one, vpp_size=vpp,
            microbatch_group_size_per_vp_stage=group))

        own_counts = []
        def gather(counts, op, group):
            own_counts.append(counts.clone())
        def most(counts, op, group):
            counts.copy_(torch.stack(own_counts).max(0).values)

        with mock.patch.object(torch.cuda, "current_device", lambda: "cpu"):
            for all_reduce in (gather, most):
                with mock.patch.object(training.dist, "all_reduce", all_reduce):
                    found = [self.batches(args, share) for share in shares]
        return found

    def batches(self, args, share):
        (iterator, *_), counts = training.get_data_iterator(args, None, share)
        return [[iterator.get_next(["sample_indices"])["sample_indices"] for _ in range(count)] for count in counts]

    def fullest(self, of_ranks):
        return max(self.lengths[each].sum() for rank in of_ranks for step in rank for each in step)

    def step_ns(self, of_ranks):
        """What the slowest rank of each step takes."""
        return sum(max(sum(self.times.of(self.lengths[each]) for each in rank[step]) for rank in of_ranks)
                   for step in range(STEPS))

    def test_the_example_makes_steps_shorter_with_the_same_samples(self):
        args, stock, rollouts = arguments(), [], [self.rollout(seed) for seed in range(8)]
        for self.lengths in rollouts:
            stock.append(self.cut(args, self.deal(args)))
        with mock.patch.object(slime_balance.RolloutDataSourceWithBuffer, "__init__", lambda self, args: None):
            slime_balance.DataSource(args)
        slime_balance.init(args)
        own_ns, ours_ns = 0, 0
        for self.lengths, own in zip(rollouts, stock):
            ours = self.cut(args, self.deal(args))
            for of_ranks in (own, ours):
                for step in range(STEPS):
                    self.assertEqual(len({len(rank[step]) for rank in of_ranks}), 1)
                everything = sorted(sample for rank in of_ranks for step in rank for each in step for sample in each)
                self.assertEqual(everything, list(range(STEPS * STEP)))
            self.assertLessEqual(self.fullest(ours), CAP)
            own_ns, ours_ns = own_ns + self.step_ns(own), ours_ns + self.step_ns(ours)
        self.assertLess(ours_ns, own_ns)

    def test_the_cap_that_miles_exceeds_is_kept(self):
        args = arguments(global_batch_size=5 * RANKS)
        self.lengths = np.array([8, 7, 6, 5, 4]) * 614  # two micro-batches by first fit; even ones are 14 and 16
        share = {"partition": range(5), "sample_indices": list(range(5))}
        self.assertEqual(self.fullest(self.cut(args, [share])), 16 * 614)
        slime_balance.init(args)
        self.assertEqual(self.fullest(self.cut(args, [share])), 15 * 614)

    def test_steps_have_the_rollouts_samples_in_turn(self):
        args = arguments()
        slime_balance.schedule(args).install_rollout("miles")
        slime_balance.schedule(args).install_training("miles")
        for step in range(STEPS):
            dealt = sorted(sample for rank in self.cut(args, self.deal(args)) for each in rank[step] for sample in each)
            self.assertEqual(dealt, list(range(step * STEP, (step + 1) * STEP)))

    def test_interleaved_stages_get_a_multiple_of_their_groups(self):
        args = arguments()
        schedule = ScheduleByTime(Balancer("<4,2,1>", calibration="a800-7b"), global_batch_size=STEP, multiple=2)
        schedule.install_rollout("miles")
        schedule.install_training("miles")
        for rank in self.cut(args, self.deal(args), vpp=2, group=2):
            for step in rank:
                self.assertEqual(len(step) % 2, 0)
                self.assertTrue(all(self.lengths[each].sum() <= CAP for each in step))

    def test_the_schedule_is_what_the_programs_parts_make(self):
        args = arguments()
        schedule = slime_balance.schedule(args)
        schedule.install_rollout("miles")
        schedule.install_training("miles")
        of_ranks = self.cut(args, self.deal(args))
        planned = schedule.schedule(self.lengths, RANKS, CAP)
        self.assertEqual([[rank[step] for rank in of_ranks] for step in range(STEPS)], planned)

    def test_a_package_with_other_modules_is_an_input_error(self):
        with mock.patch.dict(sys.modules, {"other.ray.rollout": types.ModuleType("other.ray.rollout")}):
            with self.assertRaisesRegex(sluice.InputError, "has no get_seqlen_balanced_partitions"):
                ScheduleByTime(Balancer("<4,1,1>", calibration="a800-7b")).install_rollout("other")


if __name__ == "__main__":
    unittest.main()
