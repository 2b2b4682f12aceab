"""sluice.integrations.megatron with the released megatron-core, and with the loop of Megatron-LM's trainer.

The wheel of megatron-core has no megatron/training. What its train() and train_step() do with a sampler stands in
TrainingLoop, after megatron/training/training.py of Megatron-LM's tag core_v0.16.1.
"""

import json
import pathlib
import runpy
import tempfile
import types
import unittest

import megatron_data_loader
import numpy as np
import sluice
import torch
from hybrid_schedule import step_ns
from lengths import lengths_of
from megatron.core import num_microbatches_calculator as calculator
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler
from megatron.core.rerun_state_machine import RerunDataIterator
from megatron.core.utils import get_thd_batch_on_this_cp_rank
from sluice.integrations.balancer import Balancer
from sluice.integrations.hybrid_cp import HybridCPScheduler
from sluice.integrations.megatron import BatchSampler, Documents, PackedCollate, packed_seq_params, planned_forward_backward
from torch.utils.data import DataLoader

RANKS, BATCH_SIZE, STEPS = 4, 32, 3
LENGTHS = lengths_of(STEPS * BATCH_SIZE + 10)


def balancer():
    return Balancer("<2,2,1>", model="llama-7b")


def sampler(rank, consumed_samples=0, **arguments):
    return BatchSampler(LENGTHS, balancer(), global_batch_size=BATCH_SIZE, consumed_samples=consumed_samples,
                        data_parallel_rank=rank, data_parallel_size=RANKS, **arguments)


def fetch(*, data_iterator, model, num_microbatches, forward_only=False):
    """In the place of megatron.core's function: it takes so many micro-batches, and wants at least one."""
    assert num_microbatches >= 1
    return [next(data_iterator) for _ in range(num_microbatches)]


def per_token_model(per_token=True):
    return types.SimpleNamespace(config=types.SimpleNamespace(calculate_per_token_loss=per_token))


class TrainingLoop:
    """One data-parallel rank: counts samples, asks for micro-batches and fetches them as Megatron-LM does."""

    def __init__(self, rank, consumed_samples=0, **arguments):
        calculator.unset_num_microbatches_calculator()
        calculator.init_num_microbatches_calculator(rank, None, BATCH_SIZE, 1, RANKS)
        self.consumed, self.model = consumed_samples, [per_token_model()]
        self.sampler = sampler(rank, consumed_samples, **arguments)
        loader = DataLoader([np.arange(length) for length in LENGTHS], batch_sampler=self.sampler,
                            collate_fn=PackedCollate())
        self.iterator = RerunDataIterator(iter(loader))
        self.forward_backward = planned_forward_backward(fetch, self.sampler, lambda: self.consumed)

    def train_step(self):
        calculator.update_num_microbatches(self.consumed, consistency_check=True)
        batches = self.forward_backward(data_iterator=self.iterator, model=self.model,
                                        num_microbatches=calculator.get_num_microbatches())
        self.consumed += RANKS * 1 * calculator.get_num_microbatches()
        return batches


def tokens_of(batches):
    return sorted(length for batch in batches for length in np.diff(batch["cu_seqlens"][0]))


class SamplerTest(unittest.TestCase):
    def test_ranks_share_each_global_batch_and_none_is_without(self):
        loops = [TrainingLoop(rank) for rank in range(RANKS)]
        for step in range(STEPS):
            of_rank = [loop.train_step() for loop in loops]
            self.assertTrue(all(of_rank))
            expected = sorted(LENGTHS[step * BATCH_SIZE:(step + 1) * BATCH_SIZE])
            self.assertEqual(tokens_of([batch for batches in of_rank for batch in batches]), expected)
            self.assertEqual({loop.consumed for loop in loops}, {(step + 1) * BATCH_SIZE})
        for loop in loops:
            with self.assertRaises(StopIteration, msg="the last, partial batch is dropped"):
                next(loop.iterator)

    def test_ranks_differ_in_number(self):
        counts = {tuple(sampler(rank).num_microbatches(step * BATCH_SIZE) for rank in range(RANKS))
                  for step in range(STEPS)}
        self.assertTrue(any(len(set(of_ranks)) > 1 for of_ranks in counts), counts)

    def test_equal_counts_for_experts(self):
        for step in range(STEPS):
            counts = {sampler(rank, equal_counts=True).num_microbatches(step * BATCH_SIZE) for rank in range(RANKS)}
            self.assertEqual(len(counts), 1)

    def test_a_resumed_run_goes_on_with_the_same(self):
        whole = TrainingLoop(rank=1)
        whole.train_step()
        resumed = TrainingLoop(rank=1, consumed_samples=whole.consumed)
        for _ in range(1, STEPS):
            for expected, found in zip(whole.train_step(), resumed.train_step(), strict=True):
                torch.testing.assert_close(found["tokens"], expected["tokens"])

    def test_a_step_that_runs_again_gets_its_number_again(self):
        loop = TrainingLoop(rank=0)
        arguments = {"data_iterator": loop.iterator, "model": loop.model, "num_microbatches": 8}
        first = loop.forward_backward(**arguments)
        loop.iterator.saved_microbatches = list(first)
        loop.iterator.rewind()
        again = loop.forward_backward(**arguments)
        self.assertEqual(tokens_of(again), tokens_of(first))

    def test_evaluation_keeps_its_number(self):
        loop = TrainingLoop(rank=0)
        self.assertEqual(len(loop.forward_backward(data_iterator=iter([1, 2, 3]), model=None, num_microbatches=2,
                                                   forward_only=True)), 2)

    def test_what_cannot_be_right_is_refused(self):
        with self.assertRaisesRegex(sluice.InputError, "consumed_samples is 33, no multiple"):
            sampler(0, consumed_samples=33)
        with self.assertRaisesRegex(sluice.InputError, "no whole batch is left"):
            sampler(0, consumed_samples=STEPS * BATCH_SIZE)
        with self.assertRaisesRegex(sluice.InputError, "data_parallel_rank is 4"):
            sampler(RANKS)
        loop = TrainingLoop(rank=0)
        loop.model = [per_token_model(False)]
        with self.assertRaisesRegex(sluice.InputError, "calculate-per-token-loss"):
            loop.train_step()


class CollateTest(unittest.TestCase):
    def test_makes_what_megatrons_packed_batches_hold(self):
        batch = PackedCollate()([[1, 2, 3], [4, 5]])
        params = packed_seq_params(batch)
        bounds, longest = batch["cu_seqlens"], batch["max_seqlen"]
        _, theirs = get_thd_batch_on_this_cp_rank(batch, bounds, None, longest, cp_size=1, cp_rank=0)
        self.assertEqual((params.qkv_format, params.max_seqlen_q), (theirs.qkv_format, theirs.max_seqlen_q))
        torch.testing.assert_close(params.cu_seqlens_q, theirs.cu_seqlens_q[0])
        self.assertEqual(params.cu_seqlens_q.tolist(), [0, 3, 5])
        self.assertEqual(params.cu_seqlens_q.dtype, torch.int32)

    def test_targets_are_the_next_tokens_unless_the_data_set_says(self):
        batch = PackedCollate()([[1, 2, 3], {"tokens": [4, 5], "labels": [5, 6], "loss_mask": [0, 1]}])
        self.assertEqual(batch["labels"][0, [0, 1, 3, 4]].tolist(), [2, 3, 5, 6])
        self.assertEqual(batch["loss_mask"].tolist(), [[1, 1, 0, 0, 1]])
        self.assertEqual(batch["position_ids"].tolist(), [[0, 1, 2, 0, 1]])

    def test_padding_is_a_sequence_without_loss(self):
        batch = PackedCollate(pad_to=8, pad_token=9)([[1, 2, 3], [4, 5]])
        self.assertEqual(batch["tokens"].tolist(), [[1, 2, 3, 4, 5, 9, 9, 9]])
        self.assertEqual(batch["cu_seqlens"].tolist(), [[0, 3, 5, 8]])
        self.assertEqual(batch["loss_mask"].sum(), 3)
        with self.assertRaisesRegex(sluice.InputError, "5 tokens but pad_to is 4"):
            PackedCollate(pad_to=4)([[1, 2, 3], [4, 5]])

    def test_an_empty_micro_batch_is_one_token_without_loss(self):
        batch = PackedCollate()([])
        self.assertEqual((batch["tokens"].shape, batch["loss_mask"].sum()), ((1, 1), 0))


class SchedulerTest(unittest.TestCase):
    def test_the_rival_is_held_against_the_released_scheduler(self):
        """published_test compares our megatron_dcp with these totals: they are what this megatron-core says."""
        folder = pathlib.Path(__file__).parents[1] / "data" / "dynamic_cp"
        fixtures = runpy.run_path(str(folder / "make_fixtures.py"))
        for case in json.loads((folder / "batches.json").read_text())[::10]:
            total = fixtures["total_of"](case["lengths"], case["lanes"], case["lane_tokens"])
            self.assertEqual(round(total), case["total"])


    def test_ours_stands_in_its_place(self):
        group, lengths = types.SimpleNamespace(size=lambda: 8), [int(length) for length in LENGTHS]
        samples = [(number, min(length, 8 * 4096)) for number, length in enumerate(lengths)]
        times = sluice.StageTimes(a=2.0, b=30_000.0, c=50_000)
        theirs, ours = (scheduler.get_groups_and_subsamples(samples, None) for scheduler in (
            BalancedCPScheduler(4096, group), HybridCPScheduler(4096, group, times)))
        for lengths_of_ranks, ids in (theirs, ours):
            self.assertEqual({len(group) for group in ids}, {8})
            self.assertEqual([[len(rank) for rank in group] for group in lengths_of_ranks],
                             [[len(rank) for rank in group] for group in ids])
            self.assertEqual({sample for group in ids for rank in group for sample in rank}, set(dict(samples)))
        self.assertLess(step_ns(ours[1], dict(samples), times), step_ns(theirs[1], dict(samples), times))


class ExampleTest(unittest.TestCase):
    def lengths_trained_on(self, documents):
        """documents: of each, the lengths of its sequences. Runs one step of two ranks over all of them."""
        with tempfile.TemporaryDirectory() as folder:
            prefix = str(pathlib.Path(folder, "corpus"))
            builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.int32)
            for sequences in documents:
                builder.add_document(torch.arange(sum(sequences)), sequences)
            builder.finalize(f"{prefix}.idx")
            self.assertEqual(sluice.lengths(prefix).values.tolist(), [sum(sequences) for sequences in documents])
            for number, sequences in enumerate(documents):
                self.assertEqual(Documents(prefix)[number].tolist(), list(range(sum(sequences))))
            training = types.SimpleNamespace(get_forward_backward_func=lambda: fetch)
            of_rank = []
            for rank in range(2):
                sampler, iterator = megatron_data_loader.train_data(prefix, len(documents), 0, rank, 2)
                megatron_data_loader.balance_training(training, sampler, lambda: 0)
                of_rank += training.get_forward_backward_func()(
                    data_iterator=iterator, model=[per_token_model()], num_microbatches=2)
        return tokens_of(of_rank)

    def test_trains_on_an_indexed_data_set(self):
        self.assertEqual(self.lengths_trained_on([[5], [1], [300], [40]]), [1, 5, 40, 300])

    def test_documents_of_several_sentences_are_samples_as_a_whole(self):
        self.assertEqual(self.lengths_trained_on([[5, 7, 2], [1], [200, 100], [40]]), [1, 14, 40, 300])


if __name__ == "__main__":
    unittest.main()
