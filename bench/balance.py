"""A step's time with sequences spread over four ranks by a training program's own rule, and by Sluice.

    python bench/balance.py PROGRAM        in the environment of PROGRAM: megatron, slime, torch or verl
    make bench-balance                     all four, into bench/results/balance.md

The rules are those of the released programs: Megatron-LM deals out one sample a micro-batch in turns
(MegatronPretrainingSampler, core_v0.16.1, which its wheel lacks: three lines here); accelerate deals out batches of
equally many samples in turns, in which ranks that shard parameters (FSDP) meet; verl evens out 24576 l + l² over parts of
equal size, and cuts a part into micro-batches by the same rule; miles, which grew out of slime, evens out tokens, counts
by first fit the micro-batches of the rank that needs most, and cuts every part into as many, even in tokens, one of which
may hold more than it should; Sluice's hold no more. Sluice is called as the programs call it (sluice.integrations).

Calibrated: lengths as they are, up to 32,768 tokens, ranks of four A800 with a 7B model, times of the shipped fit; a step
takes what the slowest rank does, or under FSDP the sum of the slowest of each meeting. Measured: lengths divided by 16, four
processes side by side, each with one thread and a small decoder whose attention runs sequence by sequence; every rank
times forward and backward of its micro-batches in processor time, which other programs on the machine leave alone, and the
step is put together as before. The times that Sluice balances by there are fitted to micro-batches measured in the same
four processes first. Batches take turns, program's rule then Sluice's; the ratio is of sums over all batches.
"""

import argparse
import json
import multiprocessing
import pathlib
import sys
import time

import numpy as np
import torch
from sluice import StageTimes
from sluice.integrations.balancer import Balancer, even_counts

HERE = pathlib.Path(__file__).resolve().parent
LENGTHS = {"wikipedia": HERE / "data" / "wikipedia_lengths.txt", "code": HERE / "data" / "code_lengths.txt"}
RANKS, BATCH, LONGEST, SHRUNK = 4, 64, 32_768, 16
MOST_TOKENS = 40_960  # of a micro-batch
FIT = [[32], [2048], [64] * 32, [512] * 4]
REPEATS = 3


def batches_of(name, count, shrink):
    values = np.array([int(line) for line in LENGTHS[name].read_text().split() if line.isdigit()])
    values = np.minimum(values, LONGEST) // shrink
    order = np.random.default_rng(1).permutation(len(values))[:count * BATCH]
    return np.maximum(values[order], 2).reshape(count, BATCH)


# --- Rules: of each rank its micro-batches of places in the batch ------------------------------------------------


class Megatron:
    meet = False

    def __init__(self, balancer):
        self.balancer = balancer

    def own(self, lengths):
        return [[[place] for place in range(rank, len(lengths), RANKS)] for rank in range(RANKS)]

    def ours(self, lengths):
        return self.balancer.micro_batches(lengths, RANKS)


class Torch(Megatron):
    meet = True
    PER_BATCH = 4

    def own(self, lengths):
        from accelerate.data_loader import BatchSamplerShard
        batches = [list(range(i, i + self.PER_BATCH)) for i in range(0, len(lengths), self.PER_BATCH)]
        return [list(BatchSamplerShard(batches, num_processes=RANKS, process_index=rank)) for rank in range(RANKS)]

    def ours(self, lengths):
        planned = even_counts(super().ours(lengths))
        times = self.balancer.times
        return [sorted(rank, key=lambda each: times.of(lengths[each]) if each else 0, reverse=True) for rank in planned]


class Verl(Megatron):
    def __init__(self, balancer):
        super().__init__(balancer)
        from verl.utils import seqlen_balancing
        self.module = seqlen_balancing

    def own(self, lengths):
        work = self.module.calculate_workload(torch.tensor(lengths))
        parts = self.module.get_seqlen_balanced_partitions(work, k_partitions=RANKS, equal_size=True)
        return [self.cut(part, lengths) for part in parts]

    def ours(self, lengths):
        parts = self.balancer.parts(lengths, RANKS, equal_size=True)
        return [self.cut(part, lengths) for part in parts]

    def cut(self, part, lengths):
        """A part in as few micro-batches as its tokens need, as rearrange_micro_batches cuts it."""
        own = lengths[part]
        count = max(1, -(-int(own.sum()) // self.balancer_tokens))
        work = self.module.calculate_workload(torch.tensor(own))
        pieces = self.module.get_seqlen_balanced_partitions(work, k_partitions=min(count, len(part)), equal_size=False)
        return [[part[i] for i in piece] for piece in pieces]


class Slime(Megatron):
    def __init__(self, balancer):
        super().__init__(balancer)
        from miles.utils import seqlen_balancing
        from sluice.integrations.slime import ScheduleByTime
        self.module = seqlen_balancing
        self.schedule = ScheduleByTime(balancer)

    def own(self, lengths):
        from miles.utils.data import get_minimum_num_micro_batch_size
        parts = self.module.get_seqlen_balanced_partitions(lengths.tolist(), RANKS, equal_size=True)
        count = max(get_minimum_num_micro_batch_size(lengths[part].tolist(), self.balancer_tokens) for part in parts)
        return [[[part[i] for i in piece] for piece in
                 self.module.get_seqlen_balanced_partitions(lengths[part].tolist(), count, equal_size=False)]
                for part in parts]

    def ours(self, lengths):
        (ranks,) = self.schedule.schedule(lengths, RANKS, self.balancer_tokens)
        return ranks


RULES = {"megatron": Megatron, "slime": Slime, "torch": Torch, "verl": Verl}


def step_time(rule, of_ranks):
    """From the times of each rank's micro-batches."""
    if not rule.meet:
        return max(sum(times) for times in of_ranks)
    most = max(map(len, of_ranks))
    return sum(max(times[i] if i < len(times) else 0 for times in of_ranks) for i in range(most))


def make_rule(program, balancer, most_tokens):
    rule = RULES[program](balancer)
    rule.balancer_tokens = most_tokens
    return rule


# --- Calibrated ------------------------------------------------------------------------------------------------


def calibrated(program, name, count):
    balancer = Balancer("tp4", calibration="a800-7b")
    rule = make_rule(program, balancer, MOST_TOKENS)
    sums = {"own": 0, "sluice": 0}
    for lengths in batches_of(name, count, 1):
        for who, spread in (("own", rule.own), ("sluice", rule.ours)):
            times = [[balancer.times.of(lengths[each]) if each else 0 for each in rank] for rank in spread(lengths)]
            sums[who] += step_time(rule, times)
    return {who: total / count / 1e9 for who, total in sums.items()}


# --- Measured --------------------------------------------------------------------------------------------------


class Decoder(torch.nn.Module):
    """Packed rows; attention sequence by sequence."""

    def __init__(self, hidden=192, heads=4, layers=2, vocabulary=512):
        super().__init__()
        self.heads = heads
        self.embedding = torch.nn.Embedding(vocabulary, hidden)
        self.layers = torch.nn.ModuleList(torch.nn.ModuleDict({
            "norm": torch.nn.LayerNorm(hidden), "qkv": torch.nn.Linear(hidden, 3 * hidden),
            "out": torch.nn.Linear(hidden, hidden), "up": torch.nn.Linear(hidden, 4 * hidden),
            "down": torch.nn.Linear(4 * hidden, hidden)}) for _ in range(layers))
        self.head = torch.nn.Linear(hidden, vocabulary)

    def attend(self, qkv, lengths):
        outs = []
        for part in qkv.split(lengths):
            q, k, v = part.view(len(part), 3, self.heads, -1).permute(1, 2, 0, 3)
            out = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)
            outs.append(out[0].transpose(0, 1).reshape(len(part), -1))
        return torch.cat(outs)

    def forward(self, tokens, lengths):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = x + layer["out"](self.attend(layer["qkv"](layer["norm"](x)), lengths))
            x = x + layer["down"](torch.nn.functional.gelu(layer["up"](x)))
        return torch.nn.functional.cross_entropy(self.head(x), tokens)


def timed(model, lengths):
    """Processor seconds of a micro-batch, forward and backward."""
    if not len(lengths):
        return 0.0
    tokens = torch.randint(512, (int(sum(lengths)),))
    begin = time.process_time()
    model(tokens, [int(length) for length in lengths]).backward()
    return time.process_time() - begin


def work(rank, tasks, answers, barrier):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Decoder()
    timed(model, [64])
    for micro_batches in iter(tasks.get, None):
        barrier.wait()  # all at once, as ranks are
        answers.put((rank, [timed(model, lengths) for lengths in micro_batches]))


class Processes:
    def __init__(self):
        context = multiprocessing.get_context("spawn")
        self.tasks, self.answers = [context.Queue() for _ in range(RANKS)], context.Queue()
        self.barrier = context.Barrier(RANKS)  # kept: children find it by its name
        self.processes = [context.Process(target=work, args=(rank, self.tasks[rank], self.answers, self.barrier))
                          for rank in range(RANKS)]
        for process in self.processes:
            process.start()

    def times(self, of_ranks):
        for task, micro_batches in zip(self.tasks, of_ranks):
            task.put(micro_batches)
        found = dict(self.answers.get(timeout=600) for _ in range(RANKS))
        return [found[rank] for rank in range(RANKS)]

    def close(self):
        for task in self.tasks:
            task.put(None)
        for process in self.processes:
            process.join()


def fitted(processes):
    samples = [processes.times([FIT] * RANKS) for _ in range(REPEATS)]
    return StageTimes.fit(FIT, 1e9 * np.median(np.array(samples), axis=(0, 1)))


def measured(program, name, count, processes, times):
    balancer = Balancer("tp1", times=times, max_tokens=MOST_TOKENS // SHRUNK)
    rule = make_rule(program, balancer, MOST_TOKENS // SHRUNK)
    rounds = []
    for lengths in batches_of(name, count, SHRUNK):
        spreads = [rule.own(lengths), rule.ours(lengths)]
        for spread in spreads:  # the same sequences, each once
            assert sorted(place for rank in spread for each in rank for place in each) == list(range(BATCH))
        rounds.append([step_time(rule, processes.times([[lengths[each].tolist() for each in rank] for rank in spread]))
                       for spread in spreads])
    own, ours = np.array(rounds).sum(axis=0) / count
    ratios = np.array(rounds)[:, 0] / np.array(rounds)[:, 1]
    return {"own": own, "sluice": ours, "least": ratios.min(), "most": ratios.max()}


HEADER = """# Steps with sequences balanced by programs' own rules and by Sluice

`make bench-balance` writes this page; `bench/balance.py` says what the rules are and how the times come about. Seconds a
step, and how many times as long it takes by the program's own rule: with calibrated times of A800s at full lengths, and
measured in four CPU processes at a sixteenth of the lengths (in brackets the least and the most of the batches; –: not
measured).

| program | lengths | batches | calibrated: own | Sluice | ratio | measured: own | Sluice | ratio |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def table(lines):
    print(HEADER)
    for result in map(json.loads, lines):
        planned, real = result["calibrated"], result["measured"]
        measured = "– | – | –"
        if real:
            measured = (f"{real['own']:.3f} | {real['sluice']:.3f} | {real['own'] / real['sluice']:.2f} "
                        f"({real['least']:.2f}-{real['most']:.2f})")
        print(f"| {result['program']} | {result['lengths']} | {result['batches']} | {planned['own']:.2f} | "
              f"{planned['sluice']:.2f} | {planned['own'] / planned['sluice']:.2f} | {measured} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", choices=[*RULES, "table"], help="or table: the page, of results on standard input")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--calibrated", action="store_true", help="no measurement")
    arguments = parser.parse_args()
    if arguments.program == "table":
        return table(sys.stdin)
    processes = None if arguments.calibrated else Processes()
    times = processes and fitted(processes)
    for name in LENGTHS:
        result = {"program": arguments.program, "lengths": name, "batches": arguments.batches,
                  "calibrated": calibrated(arguments.program, name, arguments.batches),
                  "measured": processes and measured(arguments.program, name, arguments.batches, processes, times)}
        print(json.dumps(result), flush=True)
    if processes:
        processes.close()


if __name__ == "__main__":
    main()
