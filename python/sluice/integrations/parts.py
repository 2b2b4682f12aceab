"""What takes time and room, in parts of even time none of which holds more than it has room for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
Sizes = NDArray[Any]


def equal_parts(times: Times, count: int) -> list[list[int]]:
    """As many of `times` in each part, and the largest sum of a part small: their places, ascending.

    REQUIRES: `count` divides the number of times.
    """
    parts = parts_within(times, np.ones_like(times), count, len(times) // count)
    assert parts is not None
    return parts


def fewest_parts(times: Times, sizes: Sizes, room: int) -> int:
    """How few parts parts_within finds room in: first fit, the largest first, or the longest first if those are fewer."""
    fitted = int(_first_fit(sizes, room).max()) + 1
    counts = range(_least_parts(sizes, room), fitted)
    return next((count for count in counts if _filled(times, sizes, count, room) is not None), fitted)


def parts_within(times: Times, sizes: Sizes, count: int, room: int) -> list[list[int]] | None:
    """In `count` parts, none empty, the largest sum of times small: places of `times`, ascending; None: fewest_parts is more.

    sizes: what each takes of a part's `room`; one that takes more than all of it has a part of its own.

    The longest first to the part with the least so far that has room; then moves to other parts and exchanges of two,
    as long as one lowers the largest sum. REQUIRES: count <= the number of times.
    """
    counts = range(count, _least_parts(sizes, room) - 1, -1)
    fillings = (_filled(times, sizes, fewer, room) for fewer in counts)
    part_of = next((filling for filling in fillings if filling is not None), None)
    if part_of is None:
        part_of = _first_fit(sizes, room)
    if part_of.max() >= count:
        return None
    for empty in range(int(part_of.max()) + 1, count):
        most = np.flatnonzero(part_of == np.argmax(np.bincount(part_of)))
        part_of[most[len(most) // 2:]] = empty
    sums = np.bincount(part_of, weights=times, minlength=count).astype(np.int64)
    taken = np.bincount(part_of, weights=sizes, minlength=count).astype(np.int64)
    while _even_out(times, sizes, part_of, sums, taken, room):
        pass
    return [np.flatnonzero(part_of == part).tolist() for part in range(count)]


def _least_parts(sizes: Sizes, room: int) -> int:
    alone = sizes > room
    return max(1, int(alone.sum()) + -(-int(sizes[~alone].sum()) // room))


def _filled(times: Times, sizes: Sizes, count: int, room: int) -> Times | None:
    part_of = np.empty(len(times), dtype=np.int64)
    sums = np.zeros(count, dtype=np.int64)
    taken = np.zeros(count, dtype=np.int64)
    for place in np.argsort(-times, kind="stable"):
        open_parts = np.flatnonzero((taken + sizes[place] <= room) | (taken == 0))
        if not open_parts.size:
            return None
        part = open_parts[np.argmin(sums[open_parts])]
        part_of[place] = part
        sums[part] += times[place]
        taken[part] += sizes[place]
    return part_of


def _first_fit(sizes: Sizes, room: int) -> Times:
    part_of = np.empty(len(sizes), dtype=np.int64)
    taken: list[int] = []
    for place in np.argsort(-sizes, kind="stable"):
        size = int(sizes[place])
        part = next((part for part, used in enumerate(taken) if used + size <= room), len(taken))
        if part == len(taken):
            taken.append(0)
        taken[part] += size
        part_of[place] = part
    return part_of


def _even_out(times: Times, sizes: Sizes, part_of: Times, sums: Times, taken: Times, room: int) -> bool:
    """Makes the move from the fullest part, or the exchange with it, that leaves the smaller of both sums' larger.

    False: none helps.
    """
    fullest = int(np.argmax(sums))
    inside, outside = np.flatnonzero(part_of == fullest), np.flatnonzero(part_of != fullest)
    others = np.delete(np.arange(len(sums)), fullest)
    if not others.size:
        return False
    # What comes for what goes: one of another part, or nothing.
    comes_time = np.concatenate([times[outside], np.zeros_like(others)])
    comes_size = np.concatenate([sizes[outside], np.zeros_like(others)])
    other = np.concatenate([part_of[outside], others])
    moved = times[inside][:, None] - comes_time[None, :]
    grows = sizes[inside][:, None] - comes_size[None, :]
    larger = np.maximum(sums[fullest] - moved, sums[other][None, :] + moved)
    allowed = (taken[fullest] - grows <= room) & (taken[other][None, :] + grows <= room)
    if len(inside) < 2:
        allowed[:, len(outside):] = False
    larger = np.where(allowed, larger, sums[fullest])
    row, column = np.unravel_index(np.argmin(larger), larger.shape)
    if larger[row, column] >= sums[fullest]:
        return False
    sums[fullest] -= moved[row, column]
    sums[other[column]] += moved[row, column]
    taken[fullest] -= grows[row, column]
    taken[other[column]] += grows[row, column]
    part_of[inside[row]] = other[column]
    if column < len(outside):
        part_of[outside[column]] = fullest
    return True
