"""Sluice in Megatron-LM's data loader: micro-batches of equal time instead of equal size.

In megatron/legacy/data/data_samplers.py, build_pretraining_data_loader takes a SluiceBatchSampler where it takes a
MegatronPretrainingSampler. `lengths` are the tokens of the data set's samples, which the data set must not pad; the
strategy has a pipeline of Megatron's own tp and pp for each data-parallel rank:

    planner = sluice.Planner(["8x<4,2,1>"], gpus=64, calibration="a800-7b")
    batch_sampler = SluiceBatchSampler(lengths, planner, args.global_batch_size, mpu.get_data_parallel_rank(),
                                       consumed_samples)

A step has as many micro-batches as the plan says: the training loop asks sampler.num_microbatches(iteration), which
may differ between data-parallel ranks, in place of get_num_microbatches(). The sum of the losses is divided by the
tokens of the global batch (--calculate-per-token-loss). Every rank plans for itself; equal inputs give equal plans.
"""

import functools

import numpy as np


class SluiceBatchSampler:
    def __init__(self, lengths, planner, global_batch_size, data_parallel_rank, consumed_samples=0):
        self.lengths, self.planner, self.rank = np.asarray(lengths), planner, data_parallel_rank
        self.batch_size, self.first_step = global_batch_size, consumed_samples // global_batch_size
        self.micro_batches = functools.lru_cache(maxsize=8)(self._micro_batches)

    def _micro_batches(self, step):
        first = step * self.batch_size
        plan = self.planner.plan(self.lengths[first:first + self.batch_size], step)
        return [[first + piece.sequence for piece in micro_batch.pieces]
                for micro_batch in plan.pipelines[self.rank].lanes[0]]

    def num_microbatches(self, step):
        return len(self.micro_batches(step))

    def __len__(self):
        return len(self.lengths)

    def __iter__(self):
        for step in range(self.first_step, len(self.lengths) // self.batch_size):
            yield from self.micro_batches(step)
