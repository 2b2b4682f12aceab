"""Sluice in PyTorch loops: FSDP, Hugging Face Trainer and accelerate.

    balancer = Balancer("<1,1,1>", calibration="calibration.json")
    batches = BatchSampler(lengths, balancer, batch_size=512, ranks=dist.get_world_size(), rank=dist.get_rank())
    loader = DataLoader(dataset, batch_sampler=batches, collate_fn=PackedCollate())

Ranks that shard parameters gather them inside every forward, so all run equally many micro-batches, the longest first:
those that meet take about the same time. Which step a micro-batch belongs to, batches.num_microbatches(step) says.
With accelerate or Trainer, leave `rank` out: the sampler then lists the micro-batches of all ranks in turn, from which
accelerate takes each rank's (DataLoaderConfiguration(even_batches=False)). Trainer wants the same number in every step:
micro_batches = gradient_accumulation_steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from sluice._sluice import InputError
from sluice.integrations import packing
from sluice.integrations.balancer import Balancer, MicroBatches, StepBatches, even_counts

__all__ = ["BatchSampler", "Balancer", "PackedCollate"]

IGNORED = -100
"""Label of a token without loss."""


class BatchSampler(torch.utils.data.Sampler[list[int]]):
    """The micro-batches of an epoch as lists of sample numbers, for a DataLoader's `batch_sampler`."""

    def __init__(
        self,
        lengths: ArrayLike,
        balancer: Balancer,
        batch_size: int,
        ranks: int,
        rank: int | None = None,
        *,
        micro_batches: int | None = None,
        seed: int | None = None,
        first_step: int = 0,
    ) -> None:
        """
        lengths: tokens of each of the data set's samples.
        batch_size: samples of a step, over all ranks.
        rank: whose micro-batches; None: those of all ranks in turn, the first of each rank, then the second.
        micro_batches: of each rank in every step; None: as many as its plan needs. A rank with too few sequences gets
            empty ones, which PackedCollate makes one token without loss.
        seed: of each epoch's order of samples (set_epoch); None: the data set's.
        first_step: of the epoch, to continue one.

        Raises InputError naming the value and the way out.
        """
        self._natural = np.asarray(lengths)
        self._balancer, self._batch_size, self._ranks, self._rank = balancer, batch_size, ranks, rank
        self._micro_batches, self._seed, self._first_step = micro_batches, seed, first_step
        if rank is not None and not 0 <= rank < ranks:
            raise InputError(f"rank is {rank}: give 0 to {ranks - 1}")
        self.set_epoch(0)
        if not 0 <= first_step < len(self._steps):
            raise InputError(f"first_step is {first_step}: give 0 to {len(self._steps) - 1}")

    def set_epoch(self, epoch: int) -> None:
        """With a seed, another order for each epoch; before iterating."""
        count = len(self._natural)
        self._order = np.arange(count)
        if self._seed is not None:
            self._order = np.random.default_rng((self._seed, epoch)).permutation(count)
        self._steps = StepBatches(self._natural[self._order], self._balancer, self._batch_size, self._ranks)

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return len(self._steps)

    def num_microbatches(self, step: int) -> int:
        """Of each rank."""
        return len(self._even(step)[0])

    def __len__(self) -> int:
        """Lists that iterating gives; only where `micro_batches` fixes it, a TypeError otherwise."""
        if self._micro_batches is None:
            raise TypeError("the number of micro-batches follows from the plans: set micro_batches, or count steps")
        lists = (self.steps - self._first_step) * self._micro_batches
        return lists * (self._ranks if self._rank is None else 1)

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self._first_step, self.steps):
            of_rank = self._even(step)
            for meeting in zip(*of_rank):
                chosen = meeting if self._rank is None else meeting[self._rank:self._rank + 1]
                for micro_batch in chosen:
                    yield self._order[micro_batch].tolist() if micro_batch else []

    def _even(self, step: int) -> list[MicroBatches]:
        planned = even_counts(self._steps[step], self._micro_batches)
        return [sorted(rank, key=self._time, reverse=True) for rank in planned]

    def _time(self, micro_batch: list[int]) -> int:
        return self._balancer.times.of(self._steps.lengths[micro_batch]) if micro_batch else 0


class PackedCollate:
    """Joins the samples of a micro-batch to one row without padding, with the names of Hugging Face models.

    A sample is a dictionary with `input_ids` and, where it has them, `labels`; or the tokens alone. The result is what
    transformers' DataCollatorWithFlattening(return_flash_attn_kwargs=True) makes: `input_ids`, `labels` (the inputs
    themselves, models shift them; a sequence's first has no loss), `position_ids`, `cu_seq_lens_q` and `_k`,
    `max_length_q` and `_k`. An empty micro-batch becomes one token without loss.
    """

    def __init__(self, pad_token: int = 0) -> None:
        self.pad_token = pad_token

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        complete = [sample if isinstance(sample, Mapping) else {"input_ids": sample} for sample in samples]
        complete = complete or [{"input_ids": [self.pad_token]}]
        lengths = [len(sample["input_ids"]) for sample in complete]
        bounds = packing.cumulative(lengths)
        labels = packing.row((sample.get("labels", sample["input_ids"]) for sample in complete), torch.int64)
        labels[0, bounds[:-1].long()] = IGNORED
        return {
            "input_ids": packing.row((sample["input_ids"] for sample in complete), torch.int64),
            "labels": labels,
            "position_ids": packing.positions(lengths),
            "cu_seq_lens_q": bounds,
            "cu_seq_lens_k": bounds,
            "max_length_q": max(lengths),
            "max_length_k": max(lengths),
        }
