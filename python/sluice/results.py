"""What calls return: plain frozen dataclasses with the names of plan.json, strategies.json, lengths.json and
simulation.json.
"""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sluice import _sluice


class Layout(str):
    """A strategy or scheme. Its text is that of files, "1x<4,2,1> + 8x<1,1,1>", so it compares equal to what the programs
    write; print, str() and formatting give what people read, "tp4,pp2 + 8x tp1". Calls take either."""

    __slots__ = ()

    def __str__(self) -> str:
        return _sluice.readable(self.file_text)

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, specification: str) -> str:
        return format(str(self), specification)

    @property
    def file_text(self) -> str:
        """As in plan.json and strategies.json."""
        return str.__str__(self)


@dataclasses.dataclass(frozen=True)
class Sequence:
    """A sequence of a batch."""

    document: int
    """Number of its document: its place in the batch unless plan() was told otherwise."""
    begin: int
    """First token inside the document."""
    length: int
    """Tokens."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """Tokens [begin, end) of a sequence, on one lane."""

    sequence: int
    """Index into the batch."""
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class LanePart:
    """A lane's part of a micro-batch: pieces that pass through its stages together."""

    micro_batch: int | None
    """Lane parts of a pipeline with the same number share sequences and exchange keys and values; None: it is alone."""
    exchange: str | None
    """The exchange of keys and values: "ring", "heads" or "nested"; None where `micro_batch` is None."""
    nested_lanes: int | None
    """Of "nested": how many neighbouring lanes exchange heads; else None."""
    pieces: list[Piece]
    pass_: int | None = None
    """The pass, where lanes share parameters: lane parts of a pipeline with the same number run as one event."""

    @property
    def tokens(self) -> int:
        """Tokens of all pieces."""
        return sum(piece.end - piece.begin for piece in self.pieces)


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """The ranks that hold one copy of the model between them, and their work."""

    scheme: str
    """TP, PP, CP, FSDP and EP degree: "tp2,cp8,fsdp8,ep4" where people read it (Layout)."""
    max_len: int
    """Tokens that a micro-batch of one lane may hold."""
    ranks: list[int]
    """Tensor-parallel ranks are neighbours, then come lanes, then stages: index (stage · cp + lane) · tp + t."""
    lanes: list[list[LanePart]]
    """Lane parts in the order in which they run, for each of cp lanes."""
    stage_layers: list[int] = dataclasses.field(default_factory=list)
    """The layers of each stage, first to last, where there are several."""

    @property
    def degrees(self) -> tuple[int, int, int]:
        """(tp, pp, cp): tensor-parallel ranks, stages, lanes."""
        return _sluice.degrees_of(self.scheme)[:3]

    @property
    def fsdp(self) -> int:
        """How many neighbouring lanes hold one copy of their stages' parameters between them; 1: each its own."""
        return _sluice.degrees_of(self.scheme)[3]

    @property
    def ep(self) -> int:
        """How many neighbouring lanes divide each layer's experts between them; 1: each gathers all."""
        return _sluice.degrees_of(self.scheme)[4]

    def lane_of(self, rank: int) -> int:
        """The lane that `rank`, one of `ranks`, belongs to. Raises IndexError for another."""
        if rank not in self.ranks:
            raise IndexError(f"rank is {rank}: this pipeline has ranks {self.ranks}")
        tp, _, cp = self.degrees
        return self.ranks.index(rank) // tp % cp


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A strategy that holds the batch."""

    strategy: str
    estimated_ns: int
    """Of its plan, or the lower bound that ruled it out."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of one step. dataclasses.asdict(plan) is plan.json but for its `schema`."""

    step: int
    hash: str
    """Of step, sequences and pipelines: equal on all ranks, or something is wrong."""
    strategy: str
    """For example "tp4,pp2 + 2x tp1" where people read it (Layout)."""
    estimated_ns: int
    """Of the slowest pipeline, forward and backward, without exchanging gradients and updating."""
    lower_bound_ns: int
    """What no plan with the planner's strategies can beat; 0: unknown."""
    gap_ppm: int
    """(estimated_ns − lower_bound_ns) ÷ lower_bound_ns, in parts per million."""
    candidates: list[Candidate]
    sequences: list[Sequence]
    pipelines: list[Pipeline]
    gpus: dataclasses.InitVar[int]
    """Of the planner: ranks are below it."""

    def __post_init__(self, gpus: int) -> None:
        object.__setattr__(self, "gpus", gpus)

    def pipeline_of(self, rank: int) -> Pipeline | None:
        """The pipeline that `rank` belongs to; None: it is idle in this step. Raises IndexError for a rank that the
        planner has no GPU for, TypeError for what is no integer."""
        rank = operator.index(rank)
        if not 0 <= rank < self.gpus:
            raise IndexError(f"rank is {rank}: the planner has {self.gpus} GPUs, give a rank from 0 to {self.gpus - 1}")
        return next((pipeline for pipeline in self.pipelines if rank in pipeline.ranks), None)

    def lane_parts(self, rank: int) -> list[LanePart]:
        """What `rank` computes, in this order; nothing where it is idle. Raises IndexError as pipeline_of."""
        pipeline = self.pipeline_of(rank)
        return pipeline.lanes[pipeline.lane_of(rank)] if pipeline else []


@dataclasses.dataclass(frozen=True)
class StageTimes:
    """What sequences take on one stage, forward and backward: a l² + b l for l tokens, and c once a micro-batch."""

    a: float
    """Nanoseconds a squared token."""
    b: float
    """Nanoseconds a token."""
    c: int
    """Nanoseconds."""

    def of_sequences(self, lengths: ArrayLike) -> NDArray[np.int64]:
        """Nanoseconds of each sequence by itself, without c."""
        tokens = np.asarray(lengths, dtype=np.float64)
        return np.rint(self.a * tokens**2 + self.b * tokens).astype(np.int64)

    def of(self, lengths: ArrayLike) -> int:
        """Nanoseconds of a micro-batch of such sequences."""
        return int(self.of_sequences(lengths).sum()) + self.c

    @classmethod
    def fit(cls, micro_batches: Iterable[ArrayLike], times_ns: ArrayLike) -> StageTimes:
        """The times nearest to measured ones, by least squares of the relative errors; none is negative.

        micro_batches: of each measurement the lengths of its sequences. Few suffice: a short one, a long one, and many
            short ones together, each timed several times.
        """
        sums = [(float((tokens**2).sum()), float(tokens.sum()), 1.0)
                for tokens in (np.asarray(each, dtype=np.float64) for each in micro_batches)]
        relative = np.array(sums) / np.asarray(times_ns, dtype=np.float64)[:, None]
        best: tuple[float, NDArray[np.float64]] | None = None
        for used in ([0, 1, 2], [0, 1], [0, 2], [1, 2], [0], [1], [2]):
            found = np.zeros(3)
            found[used] = np.linalg.lstsq(relative[:, used], np.ones(len(relative)), rcond=None)[0]
            error = float(((relative @ found - 1) ** 2).sum())
            if found.min() >= 0 and (best is None or error < best[0]):
                best = error, found
        assert best is not None  # positive columns alone have positive factors
        return cls(float(best[1][0]), float(best[1][1]), round(best[1][2]))


@dataclasses.dataclass(frozen=True)
class MeasuredPrices:
    """What a training program is known by that planning serves without knowing its model."""

    a: float
    """Nanoseconds a squared token of a sequence, forward and backward, on one stage."""
    b: float
    """Nanoseconds a token."""
    c: float
    """Nanoseconds a micro-batch."""
    max_tokens: int
    """Of a micro-batch on one lane: what its memory holds."""
    scheme: str = "tp1"
    """TP degree and stages of what was measured, on one lane. Lanes cut a sequence's time evenly."""

    @classmethod
    def of(cls, times: StageTimes, max_tokens: int, scheme: str = "tp1") -> MeasuredPrices:
        """Of fitted times (StageTimes.fit)."""
        return cls(times.a, times.b, times.c, max_tokens, scheme)


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A strategy that suits a corpus."""

    strategy: str
    max_len: int
    """The longest sequence that it holds, in tokens."""
    frequency: float
    """Share of sample batches for which it is the best."""
    longest: tuple[int, int]
    """The least and the most of the longest sequences of these batches, in tokens; (0, 0): there are none."""
    mean_estimated_ns: int
    """Of a step, over the sample batches that it holds; 0: it holds none."""
    gpus: int
    """That it uses."""
    tokens_per_s: int
    """Over the sample batches that it holds."""
    mfu: float | None = None
    """Model FLOPs utilisation over these batches: 0.4 for 40 % of what data sheets promise; None: not known."""
    peak_bytes: int = 0
    """Predicted for the fullest device, in the sample batch with the longest sequence that it holds; 0: not known."""
    mean_estimated_ns_measured_passes: int = 0
    """A step's mean where each pass that gathers parameters between nodes takes besides what FlexSP measured; 0: not
    known."""


@dataclasses.dataclass(frozen=True)
class LengthBin:
    """Documents of [from_, to) tokens."""

    from_: int
    to: int
    count: int
    tokens: int
    """Of all of them."""


@dataclasses.dataclass(frozen=True, eq=False)
class Lengths:
    """How long documents are, in tokens."""

    count: int
    tokens: int
    """Of all documents."""
    min: int
    max: int
    mean: float
    percentiles: dict[str, int]
    """"p50" and others: the smallest length that this share of documents does not exceed."""
    padding_ppm: int
    """Positions without a token if every document were padded to the longest, in parts per million."""
    histogram: list[LengthBin]
    """Bins [0, 2), [2, 4), [4, 8) …"""
    values: NDArray[np.int32]
    """Length of each document."""


@dataclasses.dataclass(frozen=True)
class SimulatedStep:
    """A step of one system, with the names of metrics.jsonl."""

    system: str
    step: int
    tokens: int
    sequences: int
    strategy: str
    time_ms: float
    """Of the whole step: pull, computation, push, update."""
    lower_bound_ms: float
    """What no plan with the system's strategies can beat; 0: unknown."""
    gap_ppm: int
    peak_bytes: int
    """Of the fullest device."""
    tokens_per_s: float
    rank_time_ns: dict[str, int]
    """Where the time of all ranks went; adds up to the ranks times the step."""
    mfu: float | None = None
    """Model FLOPs utilisation; None: the devices' peak is not known."""
    fallback: str | None = None
    """Why the plan is not the system's own planner's; None: it is."""


@dataclasses.dataclass(frozen=True)
class SimulatedSystem:
    """How a system did over all steps. Figures are 0 where it is infeasible."""

    title: str
    configuration: str
    """What it chose, in words."""
    mean_step_ns: int = 0
    mean_step_ns_measured_gathers: int = 0
    """Under the second overlap of docs/simulation.md, with what FlexSP measured for each micro-batch."""
    std_step_ns: int = 0
    tokens_per_s: int = 0
    mfu: float | None = None
    """Model FLOPs utilisation; None: the devices' peak is not known."""
    peak_bytes: int = 0
    rank_time_ns: dict[str, int] = dataclasses.field(default_factory=dict)
    """compute, cp_exchange, fsdp, pull_push, update, bubble, idle and strategy_switch: of all ranks over all steps."""
    infeasible: str | None = None
    """Why it cannot run this; None: it can."""
    compressed_communication: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """What the first step takes with settings of [link], as it is first: `setting` and `step_ns` of each."""


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Several systems on the same batches, with the names of simulation.json."""

    ranks: int
    hardware: str
    device_bytes: int
    facts: dict[str, str]
    """What was simulated, in words."""
    systems: dict[str, SimulatedSystem]
    """By name, "sluice" first."""
    steps: list[SimulatedStep]
    """Systems one after the other."""


def plan_of(json: dict[str, Any], gpus: int) -> Plan:
    """The content of a plan.json of a planner with so many GPUs as a Plan."""
    return Plan(
        step=json["step"],
        hash=json["hash"],
        strategy=Layout(json["strategy"]),
        estimated_ns=json["estimated_ns"],
        lower_bound_ns=json["lower_bound_ns"],
        gap_ppm=json["gap_ppm"],
        candidates=[Candidate(**{**candidate, "strategy": Layout(candidate["strategy"])}) for candidate in json["candidates"]],
        sequences=[Sequence(**sequence) for sequence in json["sequences"]],
        pipelines=[_pipeline_of(pipeline) for pipeline in json["pipelines"]],
        gpus=gpus,
    )


def _pipeline_of(json: dict[str, Any]) -> Pipeline:
    lanes = [[_lane_part_of(lane_part) for lane_part in lane] for lane in json["lanes"]]
    return Pipeline(
        scheme=Layout(json["scheme"]),
        max_len=json["max_len"],
        ranks=json["ranks"],
        lanes=lanes,
        stage_layers=json.get("stage_layers", []),
    )


def _lane_part_of(json: dict[str, Any]) -> LanePart:
    return LanePart(
        micro_batch=json["micro_batch"],
        exchange=json["exchange"],
        nested_lanes=json.get("nested_lanes"),
        pieces=[Piece(**piece) for piece in json["pieces"]],
        pass_=json.get("pass"),
    )


def proposal_of(json: dict[str, Any]) -> Proposal:
    """An entry of a strategies.json as a Proposal."""
    return Proposal(**{**json, "strategy": Layout(json["strategy"]), "longest": tuple(json["longest"])})


def lengths_of(json: dict[str, Any], values: NDArray[np.int32]) -> Lengths:
    """The content of a lengths.json that was made from `values` as Lengths."""
    return Lengths(
        count=json["count"],
        tokens=json["tokens"],
        min=json["min"],
        max=json["max"],
        mean=json["mean"],
        percentiles=json["percentiles"],
        padding_ppm=json["padding_ppm"],
        histogram=[
            LengthBin(from_=bin["from"], to=bin["to"], count=bin["count"], tokens=bin["tokens"])
            for bin in json["histogram"]
        ],
        values=values,
    )


def simulation_of(summary: dict[str, Any], metrics: str) -> Simulation:
    """The contents of a simulation.json and of its metrics.jsonl as a Simulation."""
    return Simulation(
        ranks=summary["ranks"],
        hardware=summary["hardware"],
        device_bytes=summary["device_bytes"],
        facts=summary["facts"],
        systems={name: SimulatedSystem(**{**system, "configuration": Layout(system["configuration"])})
                 for name, system in summary["systems"].items()},
        steps=[SimulatedStep(**{**step, "strategy": Layout(step["strategy"])})
               for step in map(json.loads, metrics.splitlines())],
    )
