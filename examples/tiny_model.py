"""What the runnable examples train: a small Llama on the bytes of Python's own standard library."""

import pathlib
import sysconfig
import time

import sluice
import torch
import transformers
from sluice.integrations.torch import PackedCollate


def samples(count=96, longest=2000):
    """Lists of byte values, most of them short: the first lines of source files."""
    files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:count]
    return [list(file.read_bytes()[:64 + (longest - 64) * (i % 7 == 0)]) for i, file in enumerate(files)]


def model(**options):
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attn_implementation="sdpa", **options))


def loss_sum(network, batch):
    """Of all targets of a packed micro-batch."""
    logits = network(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits[0, :-1], batch["labels"][0, 1:], reduction="sum")


def measured_times(network, probes=([64], [2000], [64] * 24)):
    """Times of forward and backward, by which micro-batches are balanced: one short, one long, many short."""
    nanoseconds = []
    for lengths in probes:
        batch = PackedCollate()([[0] * length for length in lengths])
        loss_sum(network, batch).backward()  # warm
        begin = time.perf_counter_ns()
        loss_sum(network, batch).backward()
        nanoseconds.append(time.perf_counter_ns() - begin)
    network.zero_grad()
    return sluice.StageTimes.fit(probes, nanoseconds)
