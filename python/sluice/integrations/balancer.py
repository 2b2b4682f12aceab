"""The sequences of a batch, spread over the data-parallel ranks of a training program by the time that they take."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sluice._sluice import InputError, degrees_of
from sluice.integrations.parts import equal_parts
from sluice.planning import Planner
from sluice.results import MeasuredPrices, StageTimes

MicroBatches = list[list[int]]
"""Of one rank: places in the batch."""


class Balancer:
    """Spreads batches over ranks that all compute alike.

    A pure function of its inputs: where every rank has a balancer of its own, all find the same. Can be pickled.
    """

    def __init__(
        self, scheme: str, *, times: StageTimes | None = None, max_tokens: int | None = None, **arguments: Any
    ) -> None:
        """
        scheme: how one data-parallel rank computes, as "tp4,pp2" for four tensor-parallel ranks times two stages.
        times, max_tokens: what micro-batches take on a stage, as measured in the training program (StageTimes.fit), and
            the most tokens of one: what its memory holds. Both or none.
        arguments: cluster, model, calibration and method of sluice.Planner, where times and memory are Sluice's: whole
            parameters and gradients on each data-parallel rank, optimiser states cut over all. Programs that cut
            parameters too (FSDP, ZeRO-3) hold more and give `max_tokens`.

        Raises InputError naming the value and the way out.
        """
        try:
            tp, pp, cp, _, _ = degrees_of(scheme)
        except InputError as error:
            raise InputError(f"scheme is {scheme!r}: {error}") from None
        if cp != 1:
            raise InputError(f"scheme is {scheme!r}: give TP and PP alone, for example tp4,pp2; lanes belong to no rank alone")
        if (times is None) != (max_tokens is None):
            raise InputError("times and max_tokens belong together: give both or none")
        self.scheme = scheme
        self._ranks = tp * pp
        if times is not None and max_tokens is not None:
            arguments["prices"] = MeasuredPrices.of(times, max_tokens, scheme)
        self._arguments = arguments
        self._planners: dict[int, Planner] = {}
        priced = self.planner(1).stage_times(scheme)
        self._times = times or priced

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planners": {}}

    @property
    def times(self) -> StageTimes:
        """What a micro-batch takes on a stage."""
        return self._times

    def planner(self, ranks: int) -> Planner:
        """That of `ranks` data-parallel ranks."""
        if ranks < 1:
            raise InputError(f"ranks is {ranks}: give 1 or more")
        if ranks not in self._planners:
            self._planners[ranks] = Planner([f"{ranks}x{self.scheme}"], gpus=ranks * self._ranks, **self._arguments)
        return self._planners[ranks]

    def micro_batches(self, lengths: ArrayLike, ranks: int, step: int = 0) -> list[MicroBatches]:
        """Of each rank its micro-batches, in the order in which it runs them: at least one of at least one sequence.

        lengths: of the batch's sequences, in tokens.

        Raises InputError where sequences are fewer than ranks, InfeasibleError where a rank does not hold the longest.
        """
        lengths = np.asarray(lengths)
        _check_count(len(lengths), ranks)
        plan = self.planner(ranks).plan(lengths, step)
        found = [
            [[piece.sequence for piece in micro_batch.pieces] for micro_batch in pipeline.lanes[0]]
            for pipeline in plan.pipelines
        ]
        for idle in (rank for rank in found if not rank):
            giver = max(found, key=lambda rank: sum(map(len, rank)))
            idle.append([_take_shortest(giver, lengths)])
        return found

    def parts(self, lengths: ArrayLike, ranks: int, *, equal_size: bool = False) -> list[list[int]]:
        """Of each rank its sequences, ascending, at least one; with `equal_size` equally many.

        Raises InputError where sequences are fewer than ranks, or with `equal_size` no multiple of them.
        """
        lengths = np.asarray(lengths)
        _check_count(len(lengths), ranks)
        if not equal_size:
            planned = self.micro_batches(lengths, ranks)
            return [sorted(place for micro_batch in rank for place in micro_batch) for rank in planned]
        if len(lengths) % ranks:
            raise InputError(
                f"{len(lengths)} sequences cannot be {ranks} parts of equal size: give a multiple, or equal_size=False"
            )
        return equal_parts(self.times.of_sequences(lengths), ranks)


def _check_count(sequences: int, ranks: int) -> None:
    if sequences < ranks:
        raise InputError(
            f"{sequences} sequences leave some of {ranks} ranks without any: give at least {ranks}, or use fewer ranks"
        )


def _take_shortest(rank: MicroBatches, lengths: NDArray[Any]) -> int:
    micro_batch = min(rank, key=lambda each: min(lengths[each]))
    taken = micro_batch.pop(int(np.argmin(lengths[micro_batch])))
    if not micro_batch:
        rank.remove(micro_batch)
    return taken


def even_counts(planned: list[MicroBatches], count: int | None = None) -> list[MicroBatches]:
    """The same work in equally many micro-batches on every rank, as collectives inside them need.

    Micro-batches of the ranks that have fewer are cut, those of most sequences first; where all hold one sequence,
    empty ones follow. count: of each rank; None: as many as the rank with the most has. Raises InputError where a rank
    has more.
    """
    most = max(map(len, planned))
    if count is None:
        count = most
    if most > count:
        raise InputError(f"a rank needs {most} micro-batches but {count} are allowed: allow more, or use a smaller batch")
    return [_cut(rank, count) for rank in planned]


def _cut(rank: MicroBatches, count: int) -> MicroBatches:
    rank = list(rank)
    while len(rank) < count:
        place = max(range(len(rank)), key=lambda each: len(rank[each]))
        micro_batch = rank[place]
        if len(micro_batch) < 2:
            return rank + [[] for _ in range(count - len(rank))]
        half = len(micro_batch) // 2
        rank[place:place + 1] = [micro_batch[:half], micro_batch[half:]]
    return rank


class StepBatches:
    """The micro-batches of every step: samples in the data set's order, `batch_size` of them a step.

    Plans of the last steps are kept, so that whoever asks for the number of a step's micro-batches, and later for the
    micro-batches, plans once. What is left of the samples behind the last whole batch belongs to no step.
    """

    KEPT = 8

    def __init__(self, lengths: ArrayLike, balancer: Balancer, batch_size: int, ranks: int) -> None:
        self.lengths = np.asarray(lengths)
        if batch_size < 1 or batch_size > len(self.lengths):
            raise InputError(f"the batch size is {batch_size}: give 1 to {len(self.lengths)}, the number of samples")
        _check_count(batch_size, ranks)
        self.balancer, self.batch_size, self.ranks = balancer, batch_size, ranks
        self._kept: OrderedDict[int, list[MicroBatches]] = OrderedDict()

    def __len__(self) -> int:
        return len(self.lengths) // self.batch_size

    def __getitem__(self, step: int) -> list[MicroBatches]:
        """Of each rank its micro-batches of sample numbers."""
        if not 0 <= step < len(self):
            raise IndexError(f"there is no step {step}: {len(self.lengths)} samples make {len(self)} steps")
        if step not in self._kept:
            self._kept[step] = self._plan(step)
            if len(self._kept) > self.KEPT:
                self._kept.popitem(last=False)
        return self._kept[step]

    def _plan(self, step: int) -> list[MicroBatches]:
        first = step * self.batch_size
        planned = self.balancer.micro_batches(self.lengths[first:first + self.batch_size], self.ranks, step)
        return [[[first + place for place in micro_batch] for micro_batch in rank] for rank in planned]
