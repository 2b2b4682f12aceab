"""Times and scores the planner that Hydraulis' authors released beside ours, on the same candidates and batches.

    git clone https://github.com/PKU-DAIR/Hetu && git -C Hetu checkout 9e47240
    pip install numpy pulp
    PYTHONPATH=build/python python3 lab/evaluation/hetu_planner.py Hetu --calibration a800-32b --gpus 64

Theirs is what their trainer calls for a batch: `dynamic_strategy` (Algorithm 1, 100 random orders) and
`batching_strategy` (Eq. 1 by CBC, half a second for each number of micro-batches) for each candidate, with the same
coefficients and capacities as ours. It runs as released but for one thing: the trainer's choice among candidates
compares the wrong numbers (`max` of a dictionary), so the least of their own estimates is taken here, which is kind.

Times are of the processor, children included. Plans of both are timed by one recurrence, that of the independent
plan checker (tests/checker/recurrence.py), with free transfers. A row is the median over the batches, with its range.
"""

import argparse
import contextlib
import io
import json
import pathlib
import resource
import statistics
import sys
import types

import sluice

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "checker"))

import cost  # noqa: E402
import recurrence  # noqa: E402


def processor_s():
    """Processor time of this process and of the children it has waited for, in seconds."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def released_planner(folder):
    """`dynamic_strategy` and `batching_strategy`. What the module imports without using need not be installed."""
    strategy = pathlib.Path(folder) / "examples" / "hydraulis" / "strategy"
    if not (strategy / "new_dynamic.py").is_file():
        sys.exit(f"{strategy / 'new_dynamic.py'} does not exist: give the folder of a clone of PKU-DAIR/Hetu at 9e47240")
    sys.modules["pyscipopt"] = types.SimpleNamespace(Model=None)
    sys.modules["tqdm"] = types.SimpleNamespace(tqdm=iter)
    sys.path.insert(0, str(strategy.parent))
    from strategy import new_dynamic
    return new_dynamic


class Released:
    """Their planner on our candidates: lists of (tp, pp), one for each pipeline."""

    def __init__(self, folder, candidates, capacity, stage_times, util_len):
        self.module = released_planner(folder)
        schemes = sorted({scheme for candidate in candidates for scheme in candidate})
        times = [stage_times(scheme) for scheme in schemes]
        self.pool = {
            "strategies": [{"tp": tp, "pp": pp, "a": t.a / 1e6, "b": t.b / 1e6, "c": t.c / 1e6}  # in ms
                           for (tp, pp), t in zip(schemes, times)],
            "cluster_config": {"utilization_seqlen": {f"tp{tp}": util_len[tp] for tp, _ in schemes}}}
        self.candidates = [[schemes.index(scheme) for scheme in candidate] for candidate in candidates]
        self.capacity = [capacity[scheme] for scheme in schemes]
        self.schemes = schemes

    def plan(self, lengths):
        """The best candidate's pipelines: pairs of a scheme and the lengths of each of its micro-batches."""
        import numpy
        ordered = numpy.array(sorted(lengths))
        found = [self.pack(candidate, ordered) for candidate in self.candidates
                 if max(self.capacity[scheme] for scheme in candidate) >= ordered[-1]]
        return min((plan for plan in found if plan), key=lambda plan: plan[0], default=(None, None))[1]

    def pack(self, candidate, lengths):
        largest_first = sorted(candidate, key=lambda scheme: self.capacity[scheme], reverse=True)
        capacities = [self.capacity[scheme] for scheme in largest_first]
        with contextlib.redirect_stdout(io.StringIO()):
            _, dispatched = self.module.dynamic_strategy(self.pool, largest_first, capacities, lengths)
            if dispatched is None:  # a pipeline stays empty, which theirs refuses
                return None
            packed = [self.module.batching_strategy(self.pool, scheme, lengths[dispatched[number]], capacity)
                      for number, (scheme, capacity) in enumerate(zip(largest_first, capacities))]
        if any(option is None for _, option in packed):
            return None
        pipelines = [(self.schemes[scheme], micro_batches(lengths[dispatched[number]], packed[number][1]))
                     for number, scheme in enumerate(largest_first)]
        return max(estimate for estimate, _ in packed), pipelines


def micro_batches(lengths, option):
    """Lengths by micro-batch, from the 0-1 matrix of sequences x micro-batches."""
    columns = [[int(length) for length, row in zip(lengths, option) if row[number] > 0.5]
               for number in range(option.shape[1])]
    return [column for column in columns if column]


def makespan_ns(pipelines, capacity, stage_times):
    """Of the slowest pipeline. A cell is a third of T(l), as in the published tables."""
    latest = 0
    for (tp, pp), batches in pipelines:
        t = stage_times((tp, pp))
        units = []
        for lengths in batches:
            third = round((sum(t.a * n * n + t.b * n for n in lengths) + t.c) / 3)
            units.append(recurrence.Unit(0, 1, sum(lengths), [(third, third, third)] * pp, [0] * pp))
        if units:
            latest = max(latest, recurrence.Pipeline(units, pp, 1, pp * capacity[tp, pp]).makespan())
    return latest


def ours(plan, lengths):
    """A sluice.Plan as pipelines of micro-batches of lengths."""
    return [(cost.parse_scheme(pipeline.scheme)[:2],
             [[piece.end - piece.begin for piece in micro_batch.pieces] for micro_batch in pipeline.lanes[0]])
            for pipeline in plan.pipelines if pipeline.lanes[0]]


def schemes_of(strategy):
    """(tp, pp) of each pipeline of a text such as "2x<4,1,1> + <8,1,1>"."""
    schemes = []
    for term in strategy.split(" + "):
        count, _, scheme = term.rpartition("x")
        schemes += [cost.parse_scheme(scheme)[:2]] * int(count or 1)
    return schemes


def batches_of(lengths, tokens, count):
    """Successive documents of a file, cut to the context by the caller, a batch each time `tokens` are full."""
    batch, batches = [], []
    for length in lengths:
        batch.append(length)
        if sum(batch) >= tokens:
            batches.append(batch)
            batch = []
        if len(batches) == count:
            return batches
    return batches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hetu", help="folder of a clone of PKU-DAIR/Hetu")
    parser.add_argument("--calibration", default="a800-32b")
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--lengths", default=str(ROOT / "bench" / "data" / "wikipedia_lengths.txt"))
    parser.add_argument("--context", type=int, default=32768)
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--batches", type=int, default=4)
    options = parser.parse_args()

    machine = {"gpus": options.gpus, "calibration": options.calibration}
    proposals = sluice.propose(options.lengths, context_length=options.context, tokens_per_step=options.tokens,
                               max_cp=1, **machine)
    candidates = [schemes_of(proposal.strategy) for proposal in proposals]
    planner = sluice.Planner([proposal.strategy for proposal in proposals], **machine)
    capacity, times = {}, {}
    for tp, pp in {scheme for candidate in candidates for scheme in candidate}:
        capacity[tp, pp] = sluice.Planner([f"1x<{tp},{pp},1>"], **machine).max_len
        times[tp, pp] = planner.stage_times(f"<{tp},{pp},1>")
    rows = json.loads((ROOT / "data" / "calibrations" / f"{options.calibration}.json").read_text())["schemes"]
    util_len = {cost.parse_scheme(row["scheme"])[0]: row["util_len"] for row in rows}
    theirs = Released(options.hetu, candidates, capacity, times.__getitem__, util_len)

    corpus = [min(int(length), options.context) for length in sluice.lengths(options.lengths).values]
    seconds, milliseconds, ratios = [], [], []
    for batch in batches_of(corpus, options.tokens, options.batches):
        before = processor_s()
        plan = planner.plan(batch)
        between = processor_s()
        released = theirs.plan(batch)
        milliseconds.append(1e3 * (between - before))
        seconds.append(processor_s() - between)
        if released is not None:
            ratios.append(makespan_ns(released, capacity, times.__getitem__)
                          / makespan_ns(ours(plan, batch), capacity, times.__getitem__))
    print(f"{options.calibration}, {options.gpus} GPUs, {len(candidates)} candidates, {len(seconds)} batches of "
          f"{options.tokens:,} tokens; median (least to most)")
    for name, values, form in (("released planner, s a plan", seconds, ".1f"), ("ours, ms a plan", milliseconds, ".2f"),
                               ("its step ÷ ours", ratios, ".3f")):
        if values:
            print(f"  {name:28} {statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})")
    if len(ratios) < len(seconds):
        print(f"  no plan of the released planner for {len(seconds) - len(ratios)} batches")


if __name__ == "__main__":
    main()
