"""The time of one pipeline by the rules of src/schedule/pipeline_schedule.h, from event to event.

At each instant first transfers start, then stages decide, from the first to the last, lanes likewise. Lanes that units
tie to each other keep in step: each runs its cells in the order in which one lane would run the rounds of all.
"""

import collections
import dataclasses
import heapq

FORWARD, INPUT, WEIGHT = range(3)


@dataclasses.dataclass
class Unit:
    """Micro-batches that run in step on `lanes` lanes from `first_lane` on; times by stage and boundary."""
    first_lane: int
    lanes: int
    tokens: int
    cells: list  # by stage: (forward, input gradient, weight gradient)
    transfers: list

    def covers(self):
        return range(self.first_lane, self.first_lane + self.lanes)

    def meets(self, other):
        return self.first_lane < other.first_lane + other.lanes and other.first_lane < self.first_lane + self.lanes


def makespan(units, stages, lanes, credit):
    """When the last cell ends. REQUIRES: every unit fits the credit."""
    return max(makespan_of_lanes([unit for unit in units if unit.first_lane in group], stages, group, lanes, credit)
               for group in tied_lanes(units, lanes))


def tied_lanes(units, lanes):
    """Runs of lanes that units tie to each other, directly or through third ones."""
    tied = {lane for unit in units for lane in unit.covers()[:-1]}  # to the next lane
    first = 0
    for lane in range(lanes):
        if lane not in tied:
            yield range(first, lane + 1)
            first = lane + 1


def makespan_of_lanes(units, stages, group, lanes, credit):
    """The makespan of lanes that depend on no others of the pipeline's `lanes`."""
    schedule = Schedule(units, stages, group, credit)
    schedule.sends_in_order = lanes > 1
    if len(group) > 1:
        rounds = rounds_of(units)
        in_rounds = Schedule([longest([units[unit] for unit in each]) for each in rounds], stages, range(1), credit)
        in_rounds.run()
        schedule.keep_in_step(rounds, in_rounds.cells)
    return schedule.run()


def rounds_of(units):
    """Each unit in the first round behind those before it on its lanes."""
    rounds, reached = [], collections.Counter()
    for number, unit in enumerate(units):
        at = max(reached[lane] for lane in unit.covers())
        for lane in unit.covers():
            reached[lane] = at + 1
        if at == len(rounds):
            rounds.append([])
        rounds[at].append(number)
    return rounds


def longest(units):
    """A round as a unit of one lane: the longest cells and transfers of its units, the most tokens."""
    return Unit(0, 1, max(unit.tokens for unit in units),
                [[max(times) for times in zip(*stage)] for stage in zip(*(unit.cells for unit in units))],
                [max(times) for times in zip(*(unit.transfers for unit in units))])


class Schedule:
    """The schedule of lanes that no unit ties to others, or that are all tied to each other."""

    def __init__(self, units, stages, lanes, credit):
        self.units, self.stages, self.lanes, self.credit = units, stages, lanes, credit
        self.sends_in_order = False
        self.in_step = None  # by stage and lane, where lanes are tied: the cells to come, in order
        self.cells = {stage: [] for stage in range(stages)}  # (kind, unit), as they have started
        self.now = 0
        # By kind, stage and unit: when the cell ends; absent before it starts.
        self.ends = {}
        self.busy = {(stage, lane): 0 for stage in range(stages) for lane in lanes}
        # By direction (+1 activations, -1 gradients), stage and lane: when the stream is free.
        self.streams = {}
        self.left = {}  # by direction, stage and lane: when the last transfer from there arrives
        self.waiting = []  # transfers: (ready, unit, from stage, direction)
        self.arrivals = {}  # by direction, stage and unit
        self.later = []  # a heap of what ends after now: (end, kind, stage, unit), or (end,) of a transfer
        self.last_on_lanes = [not any(unit.meets(later) for later in units[number + 1:])
                              for number, unit in enumerate(units)]
        # Units in flight or next, in order: those whose weight gradients are not done everywhere.
        self.open = list(range(len(units)))

    def keep_in_step(self, rounds, cells):
        """`cells`: by stage, one lane's cells of the rounds. Units of the last round are all the last of their lanes."""
        self.last_on_lanes = [number in rounds[-1] for number in range(len(self.units))]
        self.in_step = {(stage, lane): collections.deque((kind, unit) for kind, at in cells[stage] for unit in rounds[at]
                                                         if lane in self.units[unit].covers())
                        for stage in range(self.stages) for lane in self.lanes}

    def run(self):
        """When the last cell ends."""
        while True:
            self.open = [unit for unit in self.open if not self.finished(unit)]
            self.enqueue()
            self.start_transfers()
            for stage in range(self.stages):
                for lane in self.lanes:
                    self.start_cell(stage, lane)
            if not self.later:
                break
            self.now = self.later[0][0]
        if self.open:
            raise AssertionError("the schedule stands still")
        return self.now

    # What has happened.

    def done(self, kind, stage, unit):
        return self.ends.get((kind, stage, unit), self.now + 1) <= self.now

    def started(self, kind, stage, unit):
        return (kind, stage, unit) in self.ends

    def finished(self, unit):
        return all(self.done(WEIGHT, stage, unit) for stage in range(self.stages))

    def arrived(self, direction, stage, unit):
        return self.arrivals.get((direction, stage, unit), self.now + 1) <= self.now

    # Transfers.

    def enqueue(self):
        """The results of the cells that end now wait for their transfers."""
        while self.later and self.later[0][0] <= self.now:
            end, *cell = heapq.heappop(self.later)
            if not cell:
                continue
            kind, stage, unit = cell
            direction = {FORWARD: 1, INPUT: -1}.get(kind, 0)
            if direction != 0 and 0 <= stage + direction < self.stages:
                self.waiting.append((end, unit, stage, direction))
        self.waiting.sort()

    def await_those_before(self):
        """In a pipeline of several lanes a transfer is ready only when those before it on its lanes have arrived."""
        self.waiting = sorted(
            (max([ready] + [self.left.get((direction, stage, lane), 0) for lane in self.units[unit].covers()]),
             unit, stage, direction)
            for ready, unit, stage, direction in self.waiting)

    def start_transfers(self):
        """The one that has been ready longest first, then the older unit; one place sends in this order."""
        if self.sends_in_order:
            self.await_those_before()
        behind = set()
        for transfer in list(self.waiting):
            _, unit, stage, direction = transfer
            covers = self.units[unit].covers()
            ends = [(direction, at, lane) for at in (stage, stage + direction) for lane in covers]
            senders = [(direction, stage, lane) for lane in covers]
            if any(sender in behind for sender in senders) or any(
                    self.streams.get(end, 0) > self.now for end in ends):
                behind.update(senders)
                continue
            arrival = self.now + self.units[unit].transfers[min(stage, stage + direction)]
            for end in ends:
                self.streams[end] = arrival
            for sender in senders:
                self.left[sender] = arrival
            self.arrivals[direction, stage + direction, unit] = arrival
            self.waiting.remove(transfer)
            if arrival > self.now:
                heapq.heappush(self.later, (arrival,))

    # Decisions.

    def fused(self, stage, unit):
        """Whether input and weight gradient run as one cell."""
        return self.stages == 1 or (stage == 0 and self.last_on_lanes[unit])

    def older(self, unit):
        """Open units before `unit` that share a lane with it."""
        return [other for other in self.open if other < unit and self.units[other].meets(self.units[unit])]

    def backward_ready(self, stage, unit):
        if self.started(INPUT, stage, unit):
            return False
        if stage == self.stages - 1:
            arrived = self.done(FORWARD, stage, unit)
        else:
            arrived = self.arrived(-1, stage, unit)
        if not arrived or self.stages == 1 or not self.fused(stage, unit):
            return arrived
        return all(self.done(WEIGHT, stage, other) for other in self.older(unit))

    def admitted(self, unit):
        older = self.older(unit)
        if not all(self.started(FORWARD, 0, other) for other in older):
            return False
        for lane in self.units[unit].covers():
            used = sum(self.units[other].tokens for other in older if lane in self.units[other].covers())
            if used + self.units[unit].tokens > self.credit:
                return False
        return True

    def forward_ready(self, stage, unit):
        if self.started(FORWARD, stage, unit):
            return False
        return self.arrived(1, stage, unit) if stage > 0 else self.admitted(unit)

    def weight_ready(self, stage, unit):
        return self.done(INPUT, stage, unit) and not self.started(WEIGHT, stage, unit)

    def starving(self):
        """Whether the next unit waits for credit."""
        entering = next((unit for unit in self.open if not self.started(FORWARD, 0, unit)), None)
        return entering is not None and not self.admitted(entering)

    def candidates(self, lane):
        """The lane's units in flight and the next one to enter."""
        units = []
        for unit in self.open:
            if lane not in self.units[unit].covers():
                continue
            units.append(unit)
            if not self.started(FORWARD, 0, unit):
                break
        return units

    def decide(self, stage, lane):
        return self.decide_alone(stage, lane) if self.in_step is None else self.decide_in_step(stage, lane)

    def decide_in_step(self, stage, lane):
        kind, unit = next(iter(self.in_step[stage, lane]), (None, None))
        ready = {FORWARD: self.forward_ready, INPUT: self.backward_ready, WEIGHT: self.weight_ready}
        return (kind, unit) if kind is not None and ready[kind](stage, unit) else None

    def decide_alone(self, stage, lane):
        here = self.candidates(lane)
        for unit in here:
            if self.backward_ready(stage, unit):
                return INPUT, unit
        if stage > 0 and self.open and self.weight_ready(stage, self.open[0]) and self.starving():
            return WEIGHT, self.open[0]
        for kind, ready in ((FORWARD, self.forward_ready), (WEIGHT, self.weight_ready)):
            for unit in here:
                if ready(stage, unit):
                    return kind, unit
        return None

    def start_cell(self, stage, lane):
        if self.busy[stage, lane] > self.now:
            return
        choice = self.decide(stage, lane)
        if choice is None:
            return
        kind, unit = choice
        covers = self.units[unit].covers()
        if any(self.busy[stage, other] > self.now or self.decide(stage, other) != choice for other in covers):
            return
        times = self.units[unit].cells[stage]
        whole = kind == INPUT and self.fused(stage, unit)
        end = self.now + times[kind] + (times[WEIGHT] if whole else 0)
        self.ends[kind, stage, unit] = end
        heapq.heappush(self.later, (end, kind, stage, unit))
        if whole:
            self.ends[WEIGHT, stage, unit] = end
        self.cells[stage].append(choice)
        for other in covers:
            self.busy[stage, other] = end
            if self.in_step is not None:
                self.in_step[stage, other].popleft()
