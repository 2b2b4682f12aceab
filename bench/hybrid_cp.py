#!/usr/bin/env python3
"""What steps of Megatron's hybrid context parallelism take as its own scheduler lays samples on ranks, and as Sluice's does
(sluice.integrations.hybrid_cp): a table in Markdown, in the environment of `tools/bootstrap --integrations` that has megatron-core.

Nothing runs: both schedules are timed by what samples take on ranks of four A800s with a 7B model by the shipped fit, cut
evenly over the ranks that a sample lies on (tests/integrations/hybrid_schedule.py). What ranks exchange on the way counts for
nothing, for either.
"""

import argparse
import pathlib
import random
import statistics
import sys
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "integrations"))

import sluice  # noqa: E402
from hybrid_schedule import step_ns  # noqa: E402
from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler  # noqa: E402
from sluice.integrations.hybrid_cp import HybridCPScheduler  # noqa: E402

FILES = ("wikipedia", "code", "system")
RANKS = (8, 16, 32)
LONGEST, MOST = 32_768, 8192  # tokens of a sample; of one on a rank


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    times = sluice.Planner(["1x<4,1,1>"], gpus=4, calibration="a800-7b").stage_times("<4,1,1>")
    print(f"{options.batches} batches of 8 samples a rank, of up to {LONGEST} tokens, at most {MOST} on a rank; seconds.\n")
    print("| lengths | ranks | Megatron's | Sluice's | ratio | least | most |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in FILES:
        lengths = [min(max(2, int(line)), LONGEST) for line in (HERE / "data" / f"{name}_lengths.txt").read_text().split()
                   if line.isdigit()]
        source = random.Random(options.seed)
        for ranks in RANKS:
            group = types.SimpleNamespace(size=lambda ranks=ranks: ranks)
            theirs, ours = [], []
            for _ in range(options.batches):
                samples = list(enumerate(source.choices(lengths, k=8 * ranks)))
                for scheduler, found in ((BalancedCPScheduler(MOST, group), theirs), (HybridCPScheduler(MOST, group, times), ours)):
                    _, ids = scheduler.get_groups_and_subsamples(samples, None)
                    found.append(step_ns(ids, dict(samples), times) / 1e9)
            ratios = [own / other for own, other in zip(theirs, ours, strict=True)]
            print(f"| {name} | {ranks} | {statistics.mean(theirs):.2f} | {statistics.mean(ours):.2f} | "
                  f"{sum(theirs) / sum(ours):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |", flush=True)


if __name__ == "__main__":
    main()
