"""What a schedule of Megatron's hybrid context parallelism takes, by the times of its samples."""


def step_ns(groups, length_of, times):
    """Until the last rank is done. Ranks take their samples in order, one that lies on several ranks at once and in so many
    parts of its time; all meet behind each group. groups: by group, then rank, samples. Raises ValueError where ranks wait
    for each other for ever."""
    now = [0.0] * len(groups[0])
    for group in groups:
        now = [max(now)] * len(now)
        holders = {}
        for rank, samples in enumerate(group):
            for sample in samples:
                holders.setdefault(sample, []).append(rank)
        left = [list(samples) for samples in group]
        while any(left):
            ready = [samples[0] for samples in left if samples and all(
                left[rank] and left[rank][0] == samples[0] for rank in holders[samples[0]])]
            if not ready:
                raise ValueError(f"ranks wait for each other before {[samples[0] for samples in left if samples]}")
            for sample in set(ready):
                begin = max(now[rank] for rank in holders[sample])
                length, ranks = length_of[sample], holders[sample]
                end = begin + (times.a * length**2 + times.b * length) / len(ranks) + times.c
                for rank in ranks:
                    now[rank] = end
                    left[rank].pop(0)
    return max(now)
