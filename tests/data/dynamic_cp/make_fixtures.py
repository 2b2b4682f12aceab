"""Makes batches.json: random batches, and how long the released scheduler of megatron-core 0.16.1 takes for each.

Run in the environment that `tools/bootstrap --integrations` makes (integrations-megatron). A round lasts as long as its
busiest rank, and a sequence of s tokens on k ranks s² ÷ k, by the scheduler's own measure.
"""

import json
import pathlib
import random

from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler


class Group:
    """As much of a process group as the scheduler asks for."""

    def __init__(self, ranks):
        self.ranks = ranks

    def size(self):
        return self.ranks


def total_of(lengths, lanes, lane_tokens):
    scheduler = BalancedCPScheduler(lane_tokens, Group(lanes))
    _, rounds = scheduler.get_groups_and_subsamples(list(enumerate(lengths)), None)
    assert sorted({s for ranks in rounds for rank in ranks for s in rank}) == list(range(len(lengths)))
    return sum(max(sum(lengths[s] ** 2 / sum(s in other for other in ranks) for s in rank) for rank in ranks)
               for ranks in rounds)


def main():
    cases = []
    for seed in range(200):
        generator = random.Random(seed)
        lanes, lane_tokens = generator.choice([4, 8, 16]), 1000
        lengths = [min(lanes * lane_tokens, int(100 * generator.paretovariate(0.9)))
                   for _ in range(generator.randint(lanes, 12 * lanes))]
        total = round(total_of(lengths, lanes, lane_tokens))
        cases.append({"lanes": lanes, "lane_tokens": lane_tokens, "lengths": lengths, "total": total})
    lines = ",\n".join(json.dumps(case) for case in cases)
    pathlib.Path(__file__).with_name("batches.json").write_text(f"[\n{lines}\n]\n")
    print(len(cases), "batches")


if __name__ == "__main__":
    main()
