"""Sluice in verl: sequences spread over data-parallel ranks by the time that they take.

verl's trainers balance a batch with verl.utils.seqlen_balancing.get_seqlen_balanced_partitions, which they import by
name. A PartitionByTime takes its place, before the trainer runs:

    import verl.trainer.ppo.ray_trainer as trainer            # likewise ppo.v1.trainer_base, sft_trainer_ray
    trainer.get_seqlen_balanced_partitions = PartitionByTime("<4,1,1>", calibration="a800-7b")

verl.utils.seqlen_balancing itself keeps its own: rearrange_micro_batches there cuts one rank's share by other rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sluice._sluice import InputError
from sluice.integrations.balancer import Balancer

LINEAR = 24576
"""verl counts LINEAR · l + l² for a sequence of l tokens (calculate_workload)."""


class PartitionByTime:
    """Called like get_seqlen_balanced_partitions."""

    def __init__(self, scheme: str, *, values: str = "workloads", **arguments: Any) -> None:
        """
        scheme, arguments: as for Balancer; one data-parallel rank of the actor computes so.
        values: what it is called with: verl's "workloads" (verl 0.6 and later), or plain "lengths".
        """
        if values not in ("workloads", "lengths"):
            raise InputError(f"values is {values!r}: give 'workloads' or 'lengths'")
        self.values = values
        self.balancer = Balancer(scheme, **arguments)

    def __call__(self, seqlen_list: Any, k_partitions: int, equal_size: bool) -> list[list[int]]:
        """Of each of `k_partitions` ranks its places in `seqlen_list` (a list or tensor), ascending, at least one.

        With `equal_size` each gets equally many. Raises InputError as Balancer.parts does.
        """
        given = np.array([float(value) for value in seqlen_list])
        lengths = lengths_of(given) if self.values == "workloads" else given.astype(np.int64)
        return self.balancer.parts(np.maximum(lengths, 1), k_partitions, equal_size=equal_size)


def lengths_of(workloads: NDArray[np.float64]) -> NDArray[np.int64]:
    """The lengths whose workloads these are, single-precision ones included. Raises InputError where one is of none."""
    lengths = np.rint(np.sqrt(workloads + (LINEAR / 2) ** 2) - LINEAR / 2)
    wrong = np.flatnonzero(np.abs(LINEAR * lengths + lengths**2 - workloads) > 1e-6 * workloads)
    if wrong.size:
        raise InputError(
            f"seqlen_list[{wrong[0]}] is {workloads[wrong[0]]:.0f}, which is {LINEAR} l + l² for no l: "
            f"for plain lengths say values='lengths'"
        )
    return lengths.astype(np.int64)
