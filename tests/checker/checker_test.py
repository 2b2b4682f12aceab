"""checker_test.py [--count N] [--seed S]: the checker accepts random plans and rejects each when it is corrupted.

$PLAN_INSTANCES names the program that makes them.
"""

import argparse
import copy
import json
import os
import random
import subprocess
import sys

from cost import Cost, Rejected
from plan_checker import check_line, check_plan


def lane_parts(plan):
    return [lane_part for pipeline in plan["pipelines"] for lane in pipeline["lanes"] for lane_part in lane]


def any_piece(plan, draw):
    return draw.choice(draw.choice(lane_parts(plan))["pieces"])


def drop_piece(plan, draw):
    pieces = draw.choice(lane_parts(plan))["pieces"]
    pieces.remove(draw.choice(pieces))


def double_piece(plan, draw):
    draw.choice(lane_parts(plan))["pieces"].append(dict(any_piece(plan, draw)))


def shift_piece(plan, draw):
    any_piece(plan, draw)[draw.choice(("begin", "end"))] += draw.choice((-1, 1))


def rename_sequence(plan, draw):
    any_piece(plan, draw)["sequence"] += draw.choice((-1, 1)) * len(plan["sequences"])


def tie_micro_batch(plan, draw):
    lane_part = draw.choice(lane_parts(plan))
    lane_part["micro_batch"] = -1 if lane_part["micro_batch"] is None else None


def empty_micro_batch(plan, draw):
    draw.choice(draw.choice(plan["pipelines"])["lanes"]).append({"micro_batch": None, "pieces": []})


def double_rank(plan, draw):
    ranks = draw.choice(plan["pipelines"])["ranks"]
    ranks.append(draw.choice(ranks))


def foreign_rank(plan, draw):
    draw.choice(plan["pipelines"])["ranks"][0] = draw.choice((-1, 1 << 20))


def other_max_len(plan, draw):
    draw.choice(plan["pipelines"])["max_len"] += draw.choice((-1, 1))


def other_estimate(plan, draw):
    change = draw.choice((-1, 1))
    plan["estimated_ns"] += change
    for candidate in plan["candidates"]:
        candidate["estimated_ns"] += change


def other_bound(plan, _):
    plan["lower_bound_ns"] = plan["estimated_ns"] + 1


def other_gap(plan, _):
    plan["gap_ppm"] += 1


def better_candidate(plan, _):
    plan["candidates"].append({"strategy": "1x<1,1,1>", "estimated_ns": plan["estimated_ns"] - 1})


def other_strategy(plan, _):
    plan["strategy"] += " + 1x<1,1,1>"


def longer_sequence(plan, draw):
    draw.choice(plan["sequences"])["length"] += 1


def merged_micro_batches(plan, draw):
    """All of a pipeline in one micro-batch: above its capacity, or of another duration."""
    lanes = [lane for pipeline in plan["pipelines"] for lane in pipeline["lanes"] if lane]
    lane = draw.choice(lanes)
    if tokens(lane) <= max(pipeline["max_len"] for pipeline in plan["pipelines"]):
        return drop_piece(plan, draw)
    lane[:] = [{"micro_batch": None, "pieces": [piece for lane_part in lane for piece in lane_part["pieces"]]}]


def tokens(lane):
    return sum(piece["end"] - piece["begin"] for lane_part in lane for piece in lane_part["pieces"])


CORRUPTIONS = (drop_piece, double_piece, shift_piece, rename_sequence, tie_micro_batch, empty_micro_batch,
               double_rank, foreign_rank, other_max_len, other_estimate, other_bound, other_gap,
               better_candidate, other_strategy, longer_sequence, merged_micro_batches)


def check_corruptions(instance, seed):
    """How many corrupted plans were rejected; fails with the first that was accepted."""
    cost = Cost(instance["calibration"], instance["world_size"])
    draw = random.Random(seed)
    rejected = 0
    for entry in instance["plans"][:1]:
        for corrupt in CORRUPTIONS:
            plan = copy.deepcopy(entry["plan"])
            corrupt(plan, draw)
            try:
                check_plan(plan, cost)
            except Rejected:
                rejected += 1
                continue
            sys.exit(f"instance {instance['instance']}: {corrupt.__name__} was accepted")
    return rejected


# A ring with a sequence of one token, which lies whole on its first lane.
ALWAYS = (300364,)


def check_instances(count, seed):
    """How many plans were accepted, and how many corrupted ones rejected; fails with the first other."""
    command = [os.environ["PLAN_INSTANCES"], "--count", str(count), "--seed", str(seed)]
    accepted = rejected = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            instance = json.loads(line)
            try:
                accepted += check_line(instance)
            except Rejected as fault:
                sys.exit(str(fault))
            rejected += check_corruptions(instance, seed)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return accepted, rejected


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for seed in ALWAYS:
        check_instances(1, seed)
    accepted, rejected = check_instances(options.count, options.seed)
    print(f"{accepted} plans accepted, {rejected} corrupted ones rejected")


if __name__ == "__main__":
    main()
