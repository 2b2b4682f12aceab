"""Sequences one after the other in one row, with the places where they meet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch


def row(parts: Iterable[Any], dtype: torch.dtype) -> torch.Tensor:
    """One row [1, tokens] of vectors: arrays, tensors or lists."""
    vectors = [torch.as_tensor(np.asarray(part)).to(dtype) for part in parts]
    return torch.cat(vectors or [torch.empty(0, dtype=dtype)]).unsqueeze(0)


def positions(lengths: Iterable[int]) -> torch.Tensor:
    """[1, tokens]: 0, 1, 2, … anew in every sequence."""
    return row((torch.arange(length) for length in lengths), torch.int64)


def cumulative(lengths: Iterable[int]) -> torch.Tensor:
    """Where sequences begin, and the end of the last: [sequences + 1], as attention kernels take it."""
    return torch.tensor([0, *np.cumsum(list(lengths))], dtype=torch.int32)
