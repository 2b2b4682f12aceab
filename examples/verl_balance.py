"""Sluice in verl: sequences spread over data-parallel ranks by the time that they take, not by their tokens.

A PartitionByTime is called like verl.utils.seqlen_balancing.get_seqlen_balanced_partitions and may take its place in
RayPPOTrainer._balance_batch, where k_partitions is the number of data-parallel ranks. `scheme` is how one of them
computes: "<4,1,1>" with four tensor-parallel GPUs. The remaining arguments are those of sluice.Planner:

    balance = PartitionByTime("<4,1,1>", calibration="a800-7b")
    partitions = balance(seqlen_list, k_partitions=16, equal_size=True)
"""

import math

import sluice


class PartitionByTime:
    def __init__(self, scheme, **arguments):
        self.scheme, self.arguments, self.planners = scheme, arguments, {}

    def planner(self, k):
        if k not in self.planners:
            gpus = k * math.prod(map(int, self.scheme.strip("<>").split(",")))
            self.planners[k] = sluice.Planner([f"{k}x{self.scheme}"], gpus=gpus, **self.arguments)
        return self.planners[k]

    def __call__(self, seqlen_list, k_partitions, equal_size):
        plan = self.planner(k_partitions).plan(seqlen_list)
        partitions = [[piece.sequence for micro_batch in pipeline.lanes[0] for piece in micro_batch.pieces]
                      for pipeline in plan.pipelines]
        fewest = len(seqlen_list) // k_partitions if equal_size else 1
        while len(small := min(partitions, key=len)) < fewest:  # the shortest sequences move: they cost least
            large = max(partitions, key=len)
            small.append(large.pop(large.index(min(large, key=seqlen_list.__getitem__))))
        return [sorted(partition) for partition in partitions]
