"""Sluice in Megatron-LM's hybrid context parallelism (megatron-core 0.16 and later): which ranks take which samples.

megatron.core.datasets.data_schedule.HybridCPDataLoaderWrapper asks its scheduler for groups of samples, and a wrapped
loader asks another one for them so:

    loader = HybridCPDataLoaderWrapper(data_iterator, config)
    loader.cp_balancing_scheduler = HybridCPScheduler(config.max_seqlen_per_dp_cp_rank, loader.dp_cp_group, times)

Megatron's own takes a sample for the square of its length, and ends a group, behind which all ranks meet, where it finds
them even. Here samples take what was measured (StageTimes.fit), ranks follow one schedule to its end, and meet once.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

from sluice._sluice import InfeasibleError, InputError
from sluice.results import StageTimes

Groups = list[list[list[int]]]
"""By group, then rank of the DP x CP group, the samples that it takes, in this order."""


class HasSize(Protocol):
    def size(self) -> int: ...


@dataclasses.dataclass
class _Layout:
    """What ranks take, and until when."""

    ends: list[float]
    places: list[list[int]]

    def lay(self, place: int, time_ns: float, width: int) -> None:
        """Behind what they have, on the ranks of the block that are free first: all begin together."""
        begin, first = min((max(self.ends[first:first + width]), first) for first in range(0, len(self.ends), width))
        for rank in range(first, first + width):
            self.ends[rank] = begin + time_ns
            self.places[rank].append(place)


class HybridCPScheduler:
    """What BalancedCPScheduler is. A sample lies on one rank, or on 2, 4, 8, … neighbours, the first a multiple."""

    def __init__(self, max_seq_len_per_rank: int, dp_cp_group: HasSize, times: StageTimes) -> None:
        """
        max_seq_len_per_rank: most tokens of a sample on a rank: what its memory holds.
        times: of a sample on one rank, forward and backward, as measured. Ranks that share one have even parts of
            a l² + b l, and c each.

        Raises InputError naming the value and the way out.
        """
        ranks = dp_cp_group.size()
        if ranks < 1 or ranks & (ranks - 1):
            raise InputError(f"the DP x CP group has {ranks} ranks: give a power of two, as its parts are")
        if max_seq_len_per_rank < 1:
            raise InputError(f"max_seq_len_per_rank is {max_seq_len_per_rank}: give 1 or more")
        self._ranks, self._times, self._most = ranks, times, max_seq_len_per_rank

    def get_groups_and_subsamples(
        self, sample_id_seqlens: list[tuple[int, int]], config: Any = None
    ) -> tuple[Groups, Groups]:
        """Of each group and rank the lengths of its samples, and the samples: one group, with some on every rank.

        sample_id_seqlens: samples with their tokens. config: not asked.

        Raises InfeasibleError for a sample that all ranks together don't hold.
        """
        ids = [int(sample) for sample, _ in sample_id_seqlens]
        lengths = [int(length) for _, length in sample_id_seqlens]
        if not lengths:
            raise InputError("there are no samples: give one")
        if max(lengths) > self._ranks * self._most:
            raise InfeasibleError(
                f"a sample has {max(lengths)} tokens, but {self._ranks} ranks hold {self._ranks * self._most}: "
                f"raise max_seqlen_per_dp_cp_rank, which is {self._most}"
            )
        places = self._best(lengths).places
        for rank in range(self._ranks):
            if not places[rank]:
                _spread_to(rank, places, lengths)
        return [[[lengths[place] for place in rank] for rank in places]], [[[ids[place] for place in rank] for rank in places]]

    def _best(self, lengths: list[int]) -> _Layout:
        """The layout that ends first of those in which no sample takes longer than some time, if ranks suffice: from what
        no layout is shorter than, in steps of three hundredths, to what one without that bound takes."""
        alone = self._times.of_sequences(lengths).tolist()
        shared_ns = sum(time + self._times.c for time in alone) / self._ranks
        bound_ns = max(shared_ns, max(alone) / self._ranks + self._times.c)
        best = self._laid(lengths, alone, float("inf"))
        while bound_ns < max(best.ends):
            best = min(best, self._laid(lengths, alone, bound_ns), key=lambda layout: max(layout.ends))
            bound_ns *= 1.03
        return best

    def _laid(self, lengths: list[int], alone: list[int], bound_ns: float) -> _Layout:
        """The widest samples first, and of a width the longest: what is behind is cut finer, and fills."""
        chosen = []
        for place, time in enumerate(alone):
            width = 1
            while width < self._ranks and (
                lengths[place] > width * self._most or time / width + self._times.c > bound_ns
            ):
                width *= 2
            chosen.append((-width, -time, place))
        layout = _Layout([0.0] * self._ranks, [[] for _ in range(self._ranks)])
        for wide, time, place in sorted(chosen):
            layout.lay(place, time / wide + self._times.c, -wide)
        return layout


def _spread_to(idle: int, places: list[list[int]], lengths: list[int]) -> None:
    """Lays the longest sample of the smallest block of ranks around an idle one that has any over the block: all take it
    first. None of its samples lies beyond it, for then the idle rank had that one."""
    width, inside = 1, set[int]()
    while not inside:
        width *= 2
        block = range(idle // width * width, idle // width * width + width)
        inside = {place for rank in block for place in places[rank]}
    longest = max(sorted(inside), key=lengths.__getitem__)
    for rank in block:
        places[rank] = [longest] + [place for place in places[rank] if place != longest]
