"""Plans how to train Transformers on sequences of very different lengths.

    strategies = sluice.propose(lengths, gpus=64, calibration="a800-7b", context_length=32768)
    planner = sluice.Planner(strategies, gpus=64, calibration="a800-7b")
    plan = planner.plan(batch_lengths)          # every rank may compute it for itself: equal inputs, equal plans
    mine = plan.lane_parts(rank)

    study = sluice.simulate(lengths, gpus=64, calibration="a800-7b", context_length=32768, compare=["megatron"])

Lengths are tokens, times whole nanoseconds. Results are frozen dataclasses that have the names of Sluice's JSON
files. Nothing here needs a GPU or libtorch.
"""

from sluice._sluice import InfeasibleError, InputError, __version__
from sluice.planning import Planner, lengths, propose, simulate
from sluice.results import (
    Candidate,
    Layout,
    LengthBin,
    Lengths,
    MeasuredPrices,
    LanePart,
    Piece,
    Pipeline,
    Plan,
    Proposal,
    Sequence,
    SimulatedStep,
    SimulatedSystem,
    Simulation,
    StageTimes,
)

__all__ = [
    "Candidate",
    "InfeasibleError",
    "InputError",
    "Layout",
    "LengthBin",
    "Lengths",
    "MeasuredPrices",
    "LanePart",
    "Piece",
    "Pipeline",
    "Plan",
    "Planner",
    "Proposal",
    "Sequence",
    "SimulatedStep",
    "SimulatedSystem",
    "Simulation",
    "StageTimes",
    "__version__",
    "lengths",
    "propose",
    "simulate",
]

InputError.__doc__ = "An argument or a file is wrong. The message names the value and the way out."
InfeasibleError.__doc__ = "No strategy holds what was asked for. The message names what would."
for _public in (InfeasibleError, InputError):
    _public.__module__ = "sluice"  # what tracebacks print
