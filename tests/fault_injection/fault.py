"""Faults: what is done to a run, at which phases, and what is wanted of it. The modules faults_*.py list them."""

import dataclasses
from collections.abc import Callable

# Of a run under a launcher, in the order in which it passes through them.
START_UP = ("start", "join", "calibrate")
STEP = ("step", "pull", "ring", "push", "update")
RUNNING = ("step", "evaluate", "save", "behind")
ALL = (*START_UP, *STEP, "evaluate", "save", "behind", "end")


@dataclasses.dataclass(frozen=True)
class Fault:
    """`strike(trial)` does it and checks what only this fault asks for; Trial.execute checks the rest. `wanted` is
    for people: how the struck run ends."""

    group: str
    name: str
    phases: tuple[str, ...]
    wanted: str
    strike: Callable
    launcher: str = "sluice"  # what starts the struck run


class Group:
    """The faults of one module, in order."""

    def __init__(self, name):
        self.name, self.faults = name, []

    def add(self, name, phases, wanted, strike, launcher="sluice"):
        self.faults.append(Fault(self.name, name, tuple(phases), wanted, strike, launcher))

    def __call__(self, name, phases, wanted, launcher="sluice"):
        """As a decorator of the function that strikes."""
        def register(strike):
            self.add(name, phases, wanted, strike, launcher)
            return strike
        return register
