"""Recurrences beside flash-linear-attention's references, each a loop over tokens (fla/ops/*/naive.py of the package fla-core,
loaded by their paths: its own kernels want a GPU).

    python tests/parity/recurrence_parity.py build/ops_test [SEED…]
    python tests/parity/recurrence_parity.py --write tests/data/parity/recurrences.json
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

FLA = Path(next(iter(importlib.util.find_spec("fla").submodule_search_locations)))
# Documents of one token, shorter than any chunk, and of several.
LENGTHS = [1, 5, 41]
# Heads; a key's and a value's width.
HEADS, KEYS, VALUES = 2, 4, 3


def naive(operator, function):
    spec = importlib.util.spec_from_file_location(f"naive_{operator}", FLA / "ops" / operator / "naive.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)


def mamba2(q, k, v, decay, rate, state):
    run = naive("simple_gla", "naive_chunk_simple_gla")
    return run(q, k, v * rate.unsqueeze(-1), decay, initial_state=state, output_final_state=True)


def gla(q, k, v, decay, _rate, state):
    return naive("gla", "naive_recurrent_gla")(q, k, v, decay, initial_state=state, output_final_state=True)


def gated_delta(q, k, v, decay, rate, state):
    run = naive("gated_delta_rule", "naive_recurrent_gated_delta_rule")
    return run(q, k, v, rate, decay, initial_state=state, output_final_state=True)


def kimi_delta(q, k, v, decay, rate, state):
    run = naive("kda", "naive_recurrent_kda")
    return run(q, k, v, decay, rate, initial_state=state, output_final_state=True)


# Whether decays are by key channel, whether there are rates, whether it is a delta rule.
PUBLISHED = {"mamba2": (mamba2, False, True, False), "gla": (gla, True, False, False),
             "gated_delta": (gated_delta, False, True, True), "kimi_delta": (kimi_delta, True, True, True)}


def made(name):
    """A case as src/ops/recurrence_test.cpp reads it: tensors flat."""
    run, by_channel, rated, delta = PUBLISHED[name]
    tokens = sum(LENGTHS)
    keys = torch.randn(tokens, HEADS, KEYS)
    inputs = {"q": torch.randn(tokens, HEADS, KEYS), "k": keys / keys.norm(dim=-1, keepdim=True),
              "v": torch.randn(tokens, HEADS, VALUES),
              "log_decay": -torch.randn(tokens, HEADS, *([KEYS] if by_channel else [])).square() * 0.3,
              "rate": torch.rand(tokens, HEADS), "begin": torch.randn(len(LENGTHS), HEADS, KEYS, VALUES)}
    for tensor in inputs.values():
        tensor.requires_grad_(True)
    outs, ends, first = [], [], 0
    for document, length in enumerate(LENGTHS):
        rows = [inputs[part][None, first:first + length] for part in ("q", "k", "v", "log_decay", "rate")]
        out, end = run(*rows, inputs["begin"][document][None])
        outs.append(out[0])
        ends.append(end)
        first += length
    out, end = torch.cat(outs), torch.cat(ends)
    dout, dend = torch.randn_like(out), torch.randn_like(end)
    wanted = [part for part in inputs if rated or part != "rate"]
    gradients = torch.autograd.grad([out, end], [inputs[part] for part in wanted], [dout, dend])
    tensors = {**{part: inputs[part] for part in wanted}, "out": out, "end": end, "dout": dout, "dend": dend,
               **{f"d{part}": gradient for part, gradient in zip(wanted, gradients, strict=True)}}
    return {"name": name, "lengths": LENGTHS, "heads": HEADS, "keys": KEYS, "values": VALUES, "by_channel": by_channel,
            "delta": delta, **{part: [float(f"{x:.8g}") for x in tensor.detach().flatten().tolist()]
                               for part, tensor in tensors.items()}}


def write(path, seed):
    torch.manual_seed(seed)
    lines = [json.dumps(made(name)) for name in PUBLISHED]
    Path(path).write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main():
    if sys.argv[1] == "--write":
        write(sys.argv[2], 7)
        return
    for seed in sys.argv[2:] or [11, 12, 13]:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "recurrences.json"
            write(path, int(seed))
            subprocess.run([sys.argv[1], "--gtest_filter=*PublishedReferences*"], check=True,
                           env={**os.environ, "SLUICE_RECURRENCES": str(path)})


if __name__ == "__main__":
    main()
