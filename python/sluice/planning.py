"""What people call: lengths, propose, Planner, simulate."""

from __future__ import annotations

import dataclasses
import operator
import os
from collections.abc import Iterable
from typing import Any, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sluice import _sluice
from sluice.results import (
    Lengths,
    MeasuredPrices,
    Plan,
    Proposal,
    Simulation,
    StageTimes,
    lengths_of,
    plan_of,
    proposal_of,
    simulation_of,
)

Path = Union[str, "os.PathLike[str]"]
LengthSource = Union[Path, Iterable[Path], ArrayLike, Lengths]


def lengths(source: LengthSource) -> Lengths:
    """How long documents are.

    source: a path or several, or an array of lengths in tokens. A path is a Megatron corpus (.bin/.idx, or their
    prefix), a lengths.json, or a text file with one length a line.

    Raises InputError naming file, line and value.
    """
    values = _values_of(source)
    return lengths_of(_sluice.summarize(values), values)


def propose(
    lengths: LengthSource,
    *,
    gpus: int,
    cluster: Path | None = None,
    model: Path | None = None,
    calibration: Path = "analytic",
    context_length: int = 0,
    tokens_per_step: int = 200_000,
    method: str = "ours",
    max_strategies: int = 8,
    max_cp: int = 0,
    fsdp: bool = True,
    seed: int = 1,
    exchange: str = "auto",
    stages: str = "time",
) -> list[Proposal]:
    """Few strategies that together suit the batches drawn from `lengths` best; the first holds the context.

    lengths: of the corpus's documents, as for lengths().
    gpus, cluster, model, calibration: as for Planner.
    context_length: tokens; longer documents are truncated. 0: the longest document's length.
    tokens_per_step: of a batch. 0: all documents are one batch.
    method: "ours", or "paper" for the published algorithms.
    max_strategies: at most that many.
    max_cp: most lanes of a pipeline, over which long sequences are cut. 0: all ranks', or 1 with method "paper", which
        knows none.
    fsdp: whether lanes may share parameters.
    seed: of the batches that are drawn.
    exchange, stages: as for Planner.

    Takes seconds to minutes, growing with `gpus`; other Python threads run meanwhile. Equal inputs give equal
    results. Raises InputError, and InfeasibleError when no strategy holds the context length.
    """
    options = _sluice.Options(
        gpus=_count(gpus, "gpus", most=_MOST_GPUS),
        cluster=_text(cluster),
        model=_text(model),
        calibration=_text(calibration),
        context_length=_count(context_length, "context_length", least=0, most=_MOST_TOKENS),
        tokens_per_step=_count(tokens_per_step, "tokens_per_step", least=0, most=2**40),
        seed=_count(seed, "seed", least=0, most=2**63 - 1),
        exchange=exchange,
        stages=stages,
    )
    most = _count(max_strategies, "max_strategies", most=2**20)
    lanes = _count(max_cp, "max_cp", least=0, most=_MOST_GPUS)
    file = _sluice.propose(options, _values_of(lengths), method, most, lanes, fsdp)
    return [proposal_of(entry) for entry in file["strategies"]]


class Planner:
    """Plans steps: for every strategy which sequences go where, and which strategy ends first.

    Building one reads the calibration; planning a step then takes milliseconds. Threads may share a planner. A pickled
    one carries its arguments; files that they name are read again where it is unpickled.
    """

    def __init__(
        self,
        strategies: Path | Iterable[str | Proposal],
        *,
        gpus: int,
        cluster: Path | None = None,
        model: Path | None = None,
        calibration: Path = "analytic",
        method: str = "ours",
        exchange: str = "auto",
        stages: str = "time",
        prices: MeasuredPrices | None = None,
    ) -> None:
        """
        strategies: proposals, or texts such as "1x<4,2,1> + 8x<1,1,1>", or the path of a strategies.json.
        gpus: of the training run; strategies may leave some of them idle.
        cluster: a preset ("a800x8", "h100x8", …), which gets as many nodes as the GPUs need, or a JSON or TOML
            file. None: the calibration's links; with "analytic", a800x8.
        model: a public model ("qwen3-30b-a3b", "llama-7b"; a wrong name lists them) or a Hugging Face folder. None:
            the calibration's.
        calibration: a shipped fit ("a800-7b", "a800-13b", "a800-32b"), a calibration.json, or "analytic":
            assumed rates of the cluster.
        method: "ours", "paper" for the published algorithms, or "exact" for the best plans of small batches.
        exchange: how lanes that share sequences see each other's keys and values: "auto", whatever costs a unit
            least, or "ring", "heads" or "nested" alone.
        stages: what stages are cut by: "time" that layers, embedding and head take, or the number of "layers".
        prices: of another training program, in place of model and calibration; strategies then have the scheme that
            was measured, with any number of lanes.

        Raises InputError naming the value and the way out.
        """
        if prices is not None and (model is not None or calibration != "analytic"):
            raise _sluice.InputError("prices stand in place of model and calibration: leave these out")
        self._prices = prices
        self._arguments = {
            "gpus": _count(gpus, "gpus", most=_MOST_GPUS),
            "cluster": _text(cluster),
            "model": _text(model),
            "calibration": _text(calibration),
            "strategies": _strategy_texts(strategies),
            "exchange": exchange,
            "stages": stages,
        }
        self._method = method
        self._planner = self._made()

    def _made(self) -> _sluice.Planner:
        prices = self._prices and _sluice.Prices(**dataclasses.asdict(self._prices))
        return _sluice.Planner(_sluice.Options(**self._arguments, prices=prices), self._method)

    def __getstate__(self) -> tuple[dict[str, Any], str, MeasuredPrices | None]:
        return self._arguments, self._method, self._prices

    def __setstate__(self, state: tuple[dict[str, Any], str, MeasuredPrices | None]) -> None:
        self._arguments, self._method, self._prices = state
        self._planner = self._made()

    @property
    def max_len(self) -> int:
        """The longest sequence that some strategy holds, in tokens."""
        return self._planner.max_len

    def stage_times(self, scheme: str) -> StageTimes:
        """Times of micro-batches on a stage of `scheme`, for example "tp4,pp2": the slowest stage, where stages differ.

        Raises InputError when the calibration has no times for it.
        """
        return StageTimes(*self._planner.stage_times(scheme))

    def plan(self, lengths: ArrayLike, step: int = 0, *, documents: ArrayLike | None = None) -> Plan:
        """The plan of one batch.

        lengths: tokens of each sequence, integers of at least 1. Pieces of the plan refer to sequences by their
            place in it.
        step: number of the step; part of the plan's hash.
        documents: numbers for the plan's `sequences`, part of the hash. None: 0, 1, 2, …

        Other Python threads run meanwhile. Equal inputs give equal plans, on every machine. Raises InputError,
        and InfeasibleError naming the longest sequence when no strategy holds the batch.
        """
        sequence_lengths = _integers(lengths, "lengths", least=1, most=_MOST_TOKENS).astype(np.int64)
        numbers = np.arange(len(sequence_lengths)) if documents is None else documents
        sequence_documents = _integers(numbers, "documents", least=0, most=2**62).astype(np.int64)
        if len(sequence_documents) != len(sequence_lengths):
            raise _sluice.InputError(
                f"documents has {len(sequence_documents)} entries but lengths {len(sequence_lengths)}: give one each"
            )
        number = _count(step, "step", least=0, most=2**62)
        return plan_of(self._planner.plan(sequence_lengths, sequence_documents, number), self._arguments["gpus"])


def simulate(
    lengths: LengthSource,
    *,
    gpus: int,
    cluster: Path | None = None,
    model: Path | None = None,
    calibration: Path = "analytic",
    context_length: int = 0,
    tokens_per_step: int = 200_000,
    strategies: Path | Iterable[str | Proposal] = (),
    max_cp: int = 0,
    compare: str | Iterable[str] = (),
    steps: int = 20,
    seed: int = 1,
    exchange: str = "auto",
    stages: str = "time",
) -> Simulation:
    """What steps would take on a cluster that one may not have, under Sluice and other systems.

    lengths, gpus, cluster, model, calibration, context_length, tokens_per_step, seed, exchange,
        stages: as for propose().
    strategies: Sluice's candidates, as for Planner; none: they are proposed.
    max_cp: most lanes of a pipeline that is proposed. 0: all ranks'.
    compare: names of other systems ("megatron", "deepspeed", "hotspa", "flexsp", "hydraulis", ...), or "all".
    steps: from the first on; every system gets the same batches.

    Each step's graph, the one that training would run, is timed and checked. Takes seconds to minutes, most of
    them to choose configurations; other Python threads run meanwhile. Equal inputs give equal results. Raises
    InputError, and InfeasibleError when no strategy holds the context length.
    """
    options = _sluice.Options(
        gpus=_count(gpus, "gpus", most=_MOST_GPUS),
        cluster=_text(cluster),
        model=_text(model),
        calibration=_text(calibration),
        strategies=_strategy_texts(strategies),
        context_length=_count(context_length, "context_length", least=0, most=_MOST_TOKENS),
        tokens_per_step=_count(tokens_per_step, "tokens_per_step", least=0, most=2**40),
        seed=_count(seed, "seed", least=0, most=2**63 - 1),
        exchange=exchange,
        stages=stages,
    )
    systems = compare if isinstance(compare, str) else ",".join(compare)
    count = _count(steps, "steps", most=2**30)
    lanes = _count(max_cp, "max_cp", least=0, most=_MOST_GPUS)
    return simulation_of(*_sluice.simulate(options, _values_of(lengths), systems, count, lanes))


_MOST_TOKENS = 2**31 - 1
_MOST_GPUS = 2**20


def _values_of(source: LengthSource) -> NDArray[np.int32]:
    """Lengths in tokens, whatever brings them."""
    if isinstance(source, Lengths):
        return source.values
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if isinstance(source, (list, tuple)) and source and isinstance(source[0], (str, os.PathLike)):
        return _sluice.read_lengths([os.fspath(path) for path in source])
    return _integers(source, "lengths", least=0, most=_MOST_TOKENS).astype(np.int32)


def _integers(values: Any, name: str, *, least: int, most: int) -> NDArray[Any]:
    """`values` as a vector of integers in [least, most]; InputError naming the first that is none."""
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0:
        raise _sluice.InputError(f"{name} has shape {array.shape}: give a list of integers, at least one")
    if array.dtype.kind not in "iu":
        raise _sluice.InputError(f"{name} holds {array.dtype}: give integers")
    wrong = np.flatnonzero((array < least) | (array > most))
    if wrong.size:
        raise _sluice.InputError(f"{name}[{wrong[0]}] is {array[wrong[0]]}: give integers from {least} to {most}")
    return array


def _strategy_texts(strategies: Path | Iterable[str | Proposal]) -> list[str]:
    if isinstance(strategies, (str, os.PathLike)):
        return [os.fspath(strategies)]
    return [each.strategy if isinstance(each, Proposal) else os.fspath(each) for each in strategies]


def _count(value: int, name: str, *, least: int = 1, most: int) -> int:
    """`value` as an integer in [least, most]."""
    try:
        count = operator.index(value)
    except TypeError:
        raise _sluice.InputError(f"{name} is {value!r}: give an integer from {least} to {most}") from None
    if not least <= count <= most:
        raise _sluice.InputError(f"{name} is {count}: give an integer from {least} to {most}")
    return count


def _text(value: Path | None) -> str:
    return "" if value is None else os.fspath(value)
