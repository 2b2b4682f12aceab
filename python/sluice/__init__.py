"""Plans how to train Transformers on sequences of very different lengths.

    strategies = sluice.propose(lengths, gpus=64, calibration="a800-7b", context_length=32768)
    planner = sluice.Planner(strategies, gpus=64, calibration="a800-7b")
    plan = planner.plan(batch_lengths)          # every rank may compute it for itself: equal inputs, equal plans
    mine = plan.micro_batches(rank)

Lengths are tokens, times whole nanoseconds. Results are frozen dataclasses that have the names of Sluice's JSON
files. Planning needs no GPU and no libtorch.
"""

from sluice._sluice import InfeasibleError, InputError
from sluice.planning import Planner, lengths, propose
from sluice.results import (
    Candidate,
    LengthBin,
    Lengths,
    MicroBatch,
    Piece,
    Pipeline,
    Plan,
    Proposal,
    Sequence,
)

__all__ = [
    "Candidate",
    "InfeasibleError",
    "InputError",
    "LengthBin",
    "Lengths",
    "MicroBatch",
    "Piece",
    "Pipeline",
    "Plan",
    "Planner",
    "Proposal",
    "Sequence",
    "lengths",
    "propose",
]

InputError.__doc__ = "An argument or a file is wrong. The message names the value and the way out."
InfeasibleError.__doc__ = "No strategy holds what was asked for. The message names what would."
for _public in (InfeasibleError, InputError):
    _public.__module__ = "sluice"  # what tracebacks print
