"""Sluice in slime and in miles, which grew out of it: sequences over ranks and micro-batches by the time that they take.

Their rollout manager deals a rollout's samples to data-parallel ranks, equally many each and even in tokens; every
rank of the trainer then cuts a step's share into micro-batches, as many as the rank that needs most
(--use-dynamic-batch-size), even in tokens again, and --max-tokens-per-gpu only says how many there are: one may hold
more. A ScheduleByTime in their place evens out times, and no micro-batch holds more than that many tokens. Install it
in the processes of both:

    from sluice.integrations.balancer import Balancer
    from sluice.integrations.slime import ScheduleByTime
    schedule = ScheduleByTime(Balancer("<4,1,1>", calibration="a800-7b"), global_batch_size=256)
    schedule.install_rollout("miles"); schedule.install_training("miles")

examples/slime_balance.py does so by options of the program. Tested in miles-rl 0.0.2 (PyPI), whose modules lie where
slime's did then; of releases that decide all this in one function (build_dp_schedule), `schedule` says the same.

Sources: miles/ray/rollout.py (_split_train_data_by_dp), miles/backends/training_utils/data.py (get_data_iterator).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sluice._sluice import InputError
from sluice.integrations.balancer import Balancer, MicroBatches
from sluice.integrations.parts import fewest_parts, parts_within


class ScheduleByTime:
    """Who computes which samples, and in which micro-batches.

    A pure function of its inputs: every process that has one finds the same.
    """

    def __init__(self, balancer: Balancer, *, global_batch_size: int | None = None, multiple: int = 1) -> None:
        """
        balancer: of the trainer. In its scheme context-parallel ranks count as tensor-parallel ones: what matters is
            which sample takes how much longer than which.
        global_batch_size: samples of a step: each step has the next ones of the rollout, as without --balance-data;
            None: a rollout is one step.
        multiple: the number of a step's micro-batches is one of this: --microbatch-group-size-per-virtual-pipeline-stage
            where stages are interleaved.

        Raises InputError naming the value and the way out.
        """
        for name, value in (("global_batch_size", global_batch_size), ("multiple", multiple)):
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}: give 1 or more")
        self.balancer, self.global_batch_size, self.multiple = balancer, global_batch_size, multiple
        self._max_tokens: int | None = None

    def shares(self, lengths: ArrayLike, ranks: int) -> list[list[int]]:
        """Of each rank its samples, one step's behind the other's, in each equally many and even in time.

        lengths: in tokens, of a rollout. Raises InputError where `ranks` does not divide a step's samples, or a step's
        samples the rollout's.
        """
        values = _lengths(lengths)
        step = self.global_batch_size or len(values)
        if len(values) % step:
            raise InputError(f"{len(values)} samples are no multiple of the global batch size {step}")
        shares: list[list[int]] = [[] for _ in range(ranks)]
        for begin in range(0, len(values), step):
            for share, part in zip(shares, self.balancer.parts(values[begin:begin + step], ranks, equal_size=True)):
                share += [begin + place for place in part]
        return shares

    def count(self, lengths: ArrayLike, max_tokens: int) -> int:
        """Micro-batches that a rank's share of a step needs.

        max_tokens: of a micro-batch; a longer sample has one of its own. Raises InputError where the share has fewer
        samples than the multiple asks for.
        """
        values = _lengths(lengths)
        if max_tokens < 1:
            raise InputError(f"max_tokens is {max_tokens}: give 1 or more")
        needed = fewest_parts(self._times(values), values, max_tokens)
        count = -(-needed // self.multiple) * self.multiple
        if count > len(values):
            raise InputError(
                f"{len(values)} samples of a rank fill no {count} micro-batches: {needed} hold them, {self.multiple} must "
                f"divide their number; allow more tokens in each, or use a larger global batch"
            )
        return count

    def micro_batches(self, lengths: ArrayLike, count: int, max_tokens: int) -> MicroBatches:
        """A rank's share of a step in `count` micro-batches of even time, those that take longest first.

        Ranks that meet in each micro-batch (FSDP) so meet with alike ones. Raises InputError where `count` is less
        than count() says, or more than samples.
        """
        values = _lengths(lengths)
        times = self._times(values)
        parts = parts_within(times, values, count, max_tokens) if count <= len(values) else None
        if parts is None:
            least = fewest_parts(times, values, max_tokens)
            raise InputError(
                f"{count} micro-batches for {len(values)} samples: {max_tokens} tokens in each allow {least} to {len(values)}"
            )
        return sorted(parts, key=lambda part: self.balancer.times.of(values[part]), reverse=True)

    def schedule(self, lengths: ArrayLike, ranks: int, max_tokens: int) -> list[list[MicroBatches]]:
        """Of each step of a rollout, of each rank, its micro-batches of samples: on every rank as many."""
        values = _lengths(lengths)
        shares = self.shares(values, ranks)
        own = (self.global_batch_size or len(values)) // ranks
        steps = []
        for begin in range(0, len(shares[0]), own):
            of_ranks = [np.array(share[begin:begin + own]) for share in shares]
            count = max(self.count(values[samples], max_tokens) for samples in of_ranks)
            steps.append([
                [samples[part].tolist() for part in self.micro_batches(values[samples], count, max_tokens)]
                for samples in of_ranks
            ])
        return steps

    def install_rollout(self, package: str = "slime") -> None:
        """In the rollout manager's process. Raises InputError where the package's release is another."""
        _replace(f"{package}.ray.rollout", {"get_seqlen_balanced_partitions": self._partitions_of_rollout})

    def install_training(self, package: str = "slime") -> None:
        """In the process of a rank of the trainer. Raises InputError where the package's release is another."""
        _replace(f"{package}.backends.training_utils.data", {
            "get_minimum_num_micro_batch_size": self._count,
            "get_seqlen_balanced_partitions": self._partitions_of_step,
        })

    def _times(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.balancer.times.of_sequences(lengths)

    # Called as slime calls its own.

    def _partitions_of_rollout(self, seqlen_list: Any, k_partitions: int, equal_size: bool) -> list[list[int]]:
        return self.shares(seqlen_list, k_partitions)

    def _count(self, total_lengths: Any, max_tokens_per_gpu: int) -> int:
        self._max_tokens = max_tokens_per_gpu  # those who ask for partitions later don't say it
        return self.count(total_lengths, max_tokens_per_gpu)

    def _partitions_of_step(self, seqlen_list: Any, k_partitions: int, equal_size: bool) -> MicroBatches:
        assert self._max_tokens is not None
        return self.micro_batches(seqlen_list, k_partitions, self._max_tokens)


def _lengths(lengths: ArrayLike) -> NDArray[np.int64]:
    return np.maximum(np.asarray(lengths, dtype=np.int64), 1)


def _replace(module: str, functions: dict[str, Callable[..., Any]]) -> None:
    imported = importlib.import_module(module)
    for name, function in functions.items():
        if not hasattr(imported, name):
            raise InputError(f"{module} has no {name}: this release schedules elsewhere; ScheduleByTime.schedule says what")
        setattr(imported, name, function)
