"""The planner's C++; sluice/__init__.py is what to import."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__version__: str

class InputError(ValueError): ...
class InfeasibleError(ValueError): ...

class Prices:
    def __init__(self, scheme: str, a: float, b: float, c: float, max_tokens: int) -> None: ...

class Options:
    def __init__(
        self,
        *,
        gpus: int,
        cluster: str,
        model: str,
        calibration: str,
        strategies: Sequence[str] = ...,
        context_length: int = ...,
        tokens_per_step: int = ...,
        seed: int = ...,
        exchange: str = ...,
        stages: str = ...,
        prices: Prices | None = ...,
    ) -> None: ...

class Planner:
    def __init__(self, options: Options, method: str) -> None: ...
    @property
    def max_len(self) -> int: ...
    def stage_times(self, scheme: str) -> tuple[float, float, int]: ...
    def plan(self, lengths: NDArray[np.int64], documents: NDArray[np.int64], step: int) -> dict[str, Any]: ...

def degrees_of(scheme: str) -> tuple[int, int, int, int, int]: ...
def readable(text: str) -> str: ...
def read_lengths(paths: Sequence[str]) -> NDArray[np.int32]: ...
def summarize(lengths: NDArray[np.int32]) -> dict[str, Any]: ...
def propose(
    options: Options, lengths: NDArray[np.int32], method: str, max_strategies: int, max_cp: int, fsdp: bool
) -> dict[str, Any]: ...
def simulate(
    options: Options, lengths: NDArray[np.int32], systems: str, steps: int, max_cp: int
) -> tuple[dict[str, Any], str]: ...
