"""Checks plan.json without a line of the planner's code: what a plan must hold, and its times derived anew.

plan_checker.py FILE: every plan of every line that plan_instances wrote; exit status 1 with the first that is
rejected. plan_checker.py --calibration FILE --world-size N PLAN...: plans of `sluice plan`.
"""

import argparse
import json
import pathlib
import sys

from cost import Cost, Rejected, parse_scheme, time_ns
from recurrence import Unit, makespan


def require(condition, fault):
    if not condition:
        raise Rejected(fault)


# Pieces.

def check_cover(plan):
    """Every token of every sequence lies in exactly one piece."""
    found = [[] for _ in plan["sequences"]]
    for pipeline in plan["pipelines"]:
        for lane in pipeline["lanes"]:
            for lane_part in lane:
                require(lane_part["pieces"], "a micro-batch is empty")
                for piece in lane_part["pieces"]:
                    number = piece["sequence"]
                    require(0 <= number < len(found), f"there is no sequence {number}")
                    require(piece["begin"] < piece["end"], f"a piece of sequence {number} is empty")
                    found[number].append((piece["begin"], piece["end"]))
    for number, (sequence, pieces) in enumerate(zip(plan["sequences"], found)):
        at = 0
        for begin, end in sorted(pieces):
            require(begin == at, f"sequence {number}: a piece begins at {begin}, expected {at}")
            at = end
        require(at == sequence["length"], f"sequence {number}: pieces end at {at} of {sequence['length']}")


def chunk(length, lanes, number):
    """One of the 2 * lanes even chunks of a sequence."""
    return number * length // (2 * lanes), (number + 1) * length // (2 * lanes)


def is_whole(piece, plan):
    return (piece["begin"], piece["end"]) == (0, plan["sequences"][piece["sequence"]]["length"])


def check_rings(plan, pipeline):
    """Micro-batches without ring hold whole sequences; rings are cut as documented, whole ones of a lane behind them."""
    rings = {}
    for number, lane in enumerate(pipeline["lanes"]):
        for lane_part in lane:
            if lane_part["micro_batch"] is not None:
                rings.setdefault(lane_part["micro_batch"], []).append((number, lane_part["pieces"]))
                continue
            require(all(is_whole(piece, plan) for piece in lane_part["pieces"]), "a sequence is cut outside a ring")
    for ring, members in rings.items():
        check_ring(plan, ring, members)


def check_ring(plan, ring, members):
    lanes = len(members)
    first = members[0][0]
    require(lanes >= 2, f"ring {ring} has one lane")
    require([lane for lane, _ in members] == list(range(first, first + lanes)),
            f"ring {ring} does not stand once on each of neighbouring lanes")
    # The first lane has the last chunk of each shared sequence, and all of one that has a single token.
    cut = [number for number, piece in enumerate(members[0][1]) if not is_whole(piece, plan)]
    shared = list(dict.fromkeys(piece["sequence"] for piece in members[0][1][:max(cut, default=-1) + 1]))
    for lane, pieces in members:
        number = lane - first
        expected = []
        for sequence in shared:
            length = plan["sequences"][sequence]["length"]
            chunks = (chunk(length, lanes, number), chunk(length, lanes, 2 * lanes - 1 - number))
            expected += [{"sequence": sequence, "begin": begin, "end": end} for begin, end in chunks if begin < end]
        own = pieces[len(expected):]
        require(pieces[:len(expected)] == expected, f"ring {ring} is cut otherwise on lane {lane}")
        require(all(is_whole(piece, plan) for piece in own), f"ring {ring} cuts a sequence of lane {lane} alone")


def tokens_of(lane_part):
    return sum(piece["end"] - piece["begin"] for piece in lane_part["pieces"])


# The strategy.

def check_ranks(plan, world_size):
    ranks = [rank for pipeline in plan["pipelines"] for rank in pipeline["ranks"]]
    require(len(set(ranks)) == len(ranks), "a rank stands in two places")
    require(all(0 <= rank < world_size for rank in ranks), "a rank is not in the world")
    for pipeline in plan["pipelines"]:
        tp, pp, cp = parse_scheme(pipeline["scheme"])
        require(min(tp, pp, cp) >= 1, f"{pipeline['scheme']} is no scheme")
        require(len(pipeline["ranks"]) == tp * pp * cp, f"{pipeline['scheme']} on {len(pipeline['ranks'])} ranks")
        require(len(pipeline["lanes"]) == cp, f"{pipeline['scheme']} with {len(pipeline['lanes'])} lanes")


def strategy_text(schemes):
    """Runs of equal schemes are counted."""
    runs = []
    for scheme in schemes:
        if runs and runs[-1][1] == scheme:
            runs[-1][0] += 1
        else:
            runs.append([1, scheme])
    return " + ".join(f"{count}x{scheme}" for count, scheme in runs)


def check_capacity(pipeline, cost):
    max_len = cost.max_len(parse_scheme(pipeline["scheme"]))
    require(pipeline["max_len"] == max_len,
            f"{pipeline['scheme']} says max_len {pipeline['max_len']}, its memory holds {max_len}")
    for lane in pipeline["lanes"]:
        for lane_part in lane:
            require(tokens_of(lane_part) <= max_len, f"a micro-batch exceeds the {max_len} tokens of "
                    f"{pipeline['scheme']}")


# Times.

def ties(pipeline):
    """Lists of (lane, micro-batch) that run as one: lanes side by side, a ring where its last lane reaches it."""
    lanes = [list(lane) for lane in pipeline["lanes"]]
    members = {}
    for number, lane in enumerate(lanes):
        for lane_part in lane:
            members.setdefault(lane_part["micro_batch"], []).append(number)
    result, progress = [], True
    while progress:
        progress = False
        for number, lane in enumerate(lanes):
            if not lane:
                continue
            ring = lane[0]["micro_batch"]
            tied = [number] if ring is None else members[ring]
            if number != tied[0] or any(not lanes[other] or lanes[other][0]["micro_batch"] != ring for other in tied):
                continue
            result.append([(other, lanes[other].pop(0)) for other in tied])
            progress = True
    require(not any(lanes), "rings cross")
    return result


def work_of(lane_part, lanes, plan):
    """Tokens, and squared lengths: lanes of a ring share a sequence's square evenly, rounded up, but for whole ones."""
    squares = 0
    for number, whole in {(piece["sequence"], is_whole(piece, plan)) for piece in lane_part["pieces"]}:
        squares += -(-plan["sequences"][number]["length"] ** 2 // (1 if whole else lanes))
    return tokens_of(lane_part), squares


def shared_of(lane_part, plan):
    """What a lane of a ring shares with the others."""
    return {"pieces": [piece for piece in lane_part["pieces"] if not is_whole(piece, plan)]}


def unit_of(tie, plan, pipeline, cost):
    scheme = parse_scheme(pipeline["scheme"])
    works = [work_of(lane_part, len(tie), plan) for _, lane_part in tie]
    tokens = max(work[0] for work in works)
    cells = [[max(time_ns(times, *work) for work in works) for times in cost.stage_times(scheme, stage)]
             for stage in range(scheme[1])]
    tokens_taken = tokens
    if len(tie) > 1:
        fullest = max((work_of(shared_of(each, plan), len(tie), plan) for _, each in tie), key=lambda work: work[0])
        run = head_lanes(tie)
        for stage, times in enumerate(cells):
            ranks = ranks_of_lanes(pipeline, stage, [lane for lane, _ in tie])
            nodes = [tuple(rank // cost.group_ranks[0] for rank in of_lane) for of_lane in ranks]
            level = max(cost.level_of(a, b) for of_lane in ranks for a, b in zip(ranks[0], of_lane))
            cells[stage] = [*map(sum, zip(times, cost.exchange_ns(scheme, stage, nodes, level, run, fullest)))]
        tokens_taken = cost.exchange_credit(scheme, run, tokens)
    transfers = [cost.transfer_ns(scheme, tokens, boundary_level(pipeline, stage, cost))
                 for stage in range(scheme[1] - 1)]
    return Unit(tie[0][0], len(tie), tokens_taken, cells, transfers)


def head_lanes(tie):
    """How many neighbouring lanes exchange heads."""
    lane_parts = [lane_part for _, lane_part in tie]
    said = {(each["exchange"], each.get("nested_lanes")) for each in lane_parts}
    require(len(said) == 1, f"the lanes of ring {lane_parts[0]['micro_batch']} exchange otherwise")
    exchange, nested = said.pop()
    if exchange == "nested":
        require(1 < nested < len(tie) and len(tie) % nested == 0, f"{nested} of {len(tie)} lanes are nested")
        return nested
    require(exchange in ("ring", "heads"), f"lanes exchange by {exchange}")
    return len(tie) if exchange == "heads" else 1


def ranks_of_lanes(pipeline, stage, lanes):
    """Each lane's TP ranks."""
    tp, _, cp = parse_scheme(pipeline["scheme"])
    return [pipeline["ranks"][at:at + tp] for at in (tp * (stage * cp + lane) for lane in lanes)]


def boundary_level(pipeline, stage, cost):
    """On which a stage's ranks meet those of the next one."""
    tp, _, cp = parse_scheme(pipeline["scheme"])
    of_stage = [pipeline["ranks"][at * tp * cp:(at + 1) * tp * cp] for at in (stage, stage + 1)]
    return max(cost.level_of(a, b) for a, b in zip(*of_stage))


def pipeline_ns(plan, pipeline, cost):
    scheme = parse_scheme(pipeline["scheme"])
    units = [unit_of(tie, plan, pipeline, cost) for tie in ties(pipeline)]
    return makespan(units, scheme[1], scheme[2], cost.credit(scheme))


def check_times(plan, cost):
    times = [pipeline_ns(plan, pipeline, cost) for pipeline in plan["pipelines"]]
    estimate, bound = plan["estimated_ns"], plan["lower_bound_ns"]
    require(estimate == max(times), f"estimated_ns is {estimate}, the schedule takes {times}")
    require(0 <= bound <= estimate, f"lower_bound_ns {bound} exceeds the estimate {estimate}")
    gap = (estimate - bound) * 10**6 // bound if bound else 0
    require(plan["gap_ppm"] == gap, f"gap_ppm is {plan['gap_ppm']}, expected {gap}")


def check_candidates(plan):
    own = [candidate["estimated_ns"] for candidate in plan["candidates"] if candidate["strategy"] == plan["strategy"]]
    require(plan["estimated_ns"] in own, "the chosen strategy is not among the candidates with its estimate")
    if plan["lower_bound_ns"] == 0:  # the published method, which chooses by an estimate of its own
        return
    require(min(candidate["estimated_ns"] for candidate in plan["candidates"]) == plan["estimated_ns"],
            "a candidate has a smaller estimate than the chosen one")


def check_plan(plan, cost):
    """Rejected unless the plan stands on its own."""
    require(plan["schema"] == "sluice.plan/2", f"schema {plan['schema']}")
    check_ranks(plan, cost.world_size)
    schemes = [pipeline["scheme"] for pipeline in plan["pipelines"]]
    require(plan["strategy"] == strategy_text(schemes), f"strategy {plan['strategy']} with pipelines {schemes}")
    check_cover(plan)
    for pipeline in plan["pipelines"]:
        check_rings(plan, pipeline)
        check_capacity(pipeline, cost)
    check_times(plan, cost)
    check_candidates(plan)


def check_against_instance(plan, instance):
    """The plan is of this batch, and its strategy one that was allowed."""
    lengths = [sequence["length"] for sequence in plan["sequences"]]
    require(lengths == instance["lengths"], "the sequences are not the batch")
    strategy = [{"scheme": pipeline["scheme"], "ranks": pipeline["ranks"]} for pipeline in plan["pipelines"]]
    require(strategy in instance["candidates"], "the strategy is no candidate")


def check_line(instance):
    """All plans of an instance; no bound of one may exceed the time of another that had to obey it."""
    cost = Cost(instance["calibration"], instance["world_size"])
    for row in instance["calibration"]["schemes"]:
        max_len = cost.max_len(parse_scheme(row["scheme"]))
        require(row["max_len"] == max_len, f"the calibration's row {row['scheme']} holds {max_len}")
    for entry in instance["plans"]:
        try:
            check_plan(entry["plan"], cost)
            check_against_instance(entry["plan"], instance)
        except Rejected as fault:
            raise Rejected(f"instance {instance['instance']}, {entry['choice']}: {fault}") from fault
    times = {entry["choice"]: entry["plan"]["estimated_ns"] for entry in instance["plans"]}
    for entry in instance["plans"]:
        bound = entry["plan"]["lower_bound_ns"]
        require(entry["choice"] == "fixed" or bound <= min(times.values()),
                f"instance {instance['instance']}: the bound {bound} of {entry['choice']} is beaten: {times}")
    return len(instance["plans"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--calibration", type=pathlib.Path)
    parser.add_argument("--world-size", type=int)
    options = parser.parse_args()
    checked = 0
    try:
        for path in options.files:
            if options.calibration:
                cost = Cost(json.loads(options.calibration.read_text()), options.world_size)
                check_plan(json.loads(path.read_text()), cost)
                checked += 1
                continue
            with path.open() as lines:
                checked += sum(check_line(json.loads(line)) for line in lines)
    except Rejected as fault:
        sys.exit(str(fault))
    print(f"{checked} plans accepted")


if __name__ == "__main__":
    main()
