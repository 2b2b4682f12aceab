"""The layers of bench/device_layers.cpp in PyTorch, as its users would write them best: BF16 parameters and gradients,
torch.compile, packed sequences attending by torch.nn.attention.varlen and by FlexAttention. Lines of JSON as the other
program prints them, with the same loads, parts and formula of causal MFU (see there).

    python3 bench/device_layers.py [--layers 4] [--tokens 16384] [--attention varlen|flex] [--only LOAD]

Our own layers keep FP32 gradients; these keep BF16 ones, which is less work.
"""

import argparse
import json
import pathlib
import statistics

PEAK_FLOPS = 989e12  # H100 and H200 SXM, dense BF16
BUDGET_MS = 400
DATA = pathlib.Path(__file__).resolve().parent / "data"
MODELS = {"8b": {"hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 32768},
          "7b": {"hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 11008, "vocab": 32768}}
HEAD_DIM = 128


def loads(tokens):
    """(name, lengths) of every load."""
    for length in (4096, 8192, 16384, 32768, 131072):
        count = max(1, tokens // length)
        yield f"{count}x{length}", [length] * count
    for name in ("wikipedia", "code"):
        lengths, left = [], tokens
        for line in (DATA / f"{name}_lengths.txt").read_text().split():
            if left < 2:
                break
            lengths.append(min(max(2, min(int(line), 131072)), left))
            left -= lengths[-1]
        yield f"{name}-{tokens}", lengths


def forward_flops(model, lengths):
    """Of one layer's forward, causal pairs counted once."""
    hidden, queries, keys = model["hidden"], model["heads"] * HEAD_DIM, model["kv_heads"] * HEAD_DIM
    products = 2 * sum(lengths) * (hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * model["ffn"])
    return products + 4 * queries * sum(length * (length + 1) / 2 for length in lengths)


def time_ms(torch, work):
    """Median and distance of the quartiles of the GPU's times."""
    work()
    work()
    turns, events = None, []
    for count in (1, None):
        count = count or max(3, min(20, int(BUDGET_MS / max(1e-3, turns[0]))))
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        events[0].record()
        for event in events[1:]:
            work()
            event.record()
        torch.cuda.synchronize()
        turns = [before.elapsed_time(after) for before, after in zip(events, events[1:])]
    turns.sort()
    return statistics.median(turns), turns[len(turns) * 3 // 4] - turns[len(turns) // 4]


def layers_of(torch, model, count, attend):
    """`count` decoder layers, and a function of rows, cosines and sines that runs them."""
    nn, functional = torch.nn, torch.nn.functional
    heads, kv_heads = model["heads"], model["kv_heads"]

    def rotate(x, cos, sin):
        low, high = x.float().chunk(2, dim=-1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1).to(x.dtype)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            hidden, ffn = model["hidden"], model["ffn"]
            self.attention_norm, self.mlp_norm = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
            self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * HEAD_DIM, bias=False)
            self.out = nn.Linear(heads * HEAD_DIM, hidden, bias=False)
            self.gate_up = nn.Linear(hidden, 2 * ffn, bias=False)
            self.down = nn.Linear(ffn, hidden, bias=False)

        def forward(self, x, cos, sin):
            qkv = self.qkv(self.attention_norm(x)).view(-1, heads + 2 * kv_heads, HEAD_DIM)
            q, k, v = qkv.split([heads, kv_heads, kv_heads], dim=1)
            x = x + self.out(attend(rotate(q, cos, sin), rotate(k, cos, sin), v).flatten(1))
            gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
            return x + self.down(functional.silu(gate) * up)

    modules = nn.ModuleList(Layer() for _ in range(count)).to(device="cuda", dtype=torch.bfloat16)
    for layer in modules:
        layer.compile()  # one graph serves all

    def run(x, cos, sin):
        for layer in modules:
            x = layer(x, cos, sin)
        return x

    return modules, run


def varlen_attention(torch, lengths):
    """Packed rows through flash attention with sequence tables."""
    from torch.nn.attention.varlen import varlen_attn

    begins = torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)
    longest = max(lengths)

    def attend(q, k, v):
        return varlen_attn(q, k, v, begins, begins, longest, longest, window_size=(-1, 0))

    return attend


def flex_attention(torch, lengths):
    """Packed rows under a block mask of causal documents."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention as flex

    tokens = sum(lengths)
    document = torch.repeat_interleave(torch.arange(len(lengths), device="cuda"),
                                       torch.tensor(lengths, device="cuda"))
    mask = create_block_mask(lambda b, h, q, k: (q >= k) & (document[q] == document[k]), None, None, tokens, tokens,
                             device="cuda", _compile=True)

    def attend(q, k, v):
        q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
        return flex(q, k, v, block_mask=mask, enable_gqa=True).squeeze(0).transpose(0, 1)

    return attend


ATTENTION = {"varlen": varlen_attention, "flex": flex_attention}


def measure(torch, arguments, name, load, lengths, attention):
    model, tokens = MODELS[name], sum(lengths)
    torch.compiler.reset()
    modules, run = layers_of(torch, model, arguments.layers, ATTENTION[attention](torch, lengths))
    x = torch.randn(tokens, model["hidden"], device="cuda", dtype=torch.bfloat16, requires_grad=True)
    dy = torch.randn_like(x) * 1e-3
    positions = torch.cat([torch.arange(length, device="cuda") for length in lengths]).float()
    angles = positions[:, None] * 500000.0 ** (-torch.arange(0, HEAD_DIM, 2, device="cuda") / HEAD_DIM)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def step():
        run(x, cos, sin).backward(dy)
        for parameter in modules.parameters():
            parameter.grad = None
        x.grad = None

    torch.cuda.reset_peak_memory_stats()
    flops = arguments.layers * forward_flops(model, lengths)
    for part, factor, work in (("layers forward", 1, lambda: run(x, cos, sin)), ("layers step", 3, step)):
        median, spread = time_ms(torch, work)
        print(json.dumps({"system": f"torch-{attention}", "model": name, "layers": arguments.layers, "load": load,
                          "sequences": len(lengths), "tokens": tokens, "part": part, "ms": median,
                          "spread_ms": spread, "causal_mfu": factor * flops / (median * 1e-3) / PEAK_FLOPS,
                          "peak_bytes": torch.cuda.max_memory_allocated()}), flush=True)


def measure_head(torch, arguments, name, load, lengths):
    """The output matrix and its loss, forward and backward: compiled, so that softmax and gradient are one pass each, in
    chunks of rows, so that logits are never there as a whole."""
    functional = torch.nn.functional
    model, tokens = MODELS[name], sum(lengths)
    torch.compiler.reset()
    weight = (torch.randn(model["vocab"], model["hidden"], device="cuda") * 0.02).to(torch.bfloat16).requires_grad_()
    x = torch.randn(tokens, model["hidden"], device="cuda", dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(model["vocab"], (tokens,), device="cuda")
    rows = min(tokens, (1 << 30) // (2 * model["vocab"]))

    @torch.compile
    def loss_of(rows_of_x, rows_of_targets):
        logits = functional.linear(rows_of_x, weight)
        return functional.cross_entropy(logits.float(), rows_of_targets, reduction="sum")

    def step():
        for chunk, of_chunk in zip(x.split(rows), targets.split(rows)):
            loss_of(chunk, of_chunk).backward()
        weight.grad = x.grad = None

    flops = 6 * tokens * model["hidden"] * model["vocab"]
    median, spread = time_ms(torch, step)
    print(json.dumps({"system": "torch", "model": name, "layers": arguments.layers, "load": load,
                      "sequences": len(lengths), "tokens": tokens, "part": "head step", "ms": median,
                      "spread_ms": spread, "causal_mfu": flops / (median * 1e-3) / PEAK_FLOPS}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--attention", choices=[*ATTENTION], help="default: both")
    parser.add_argument("--model", choices=[*MODELS], help="default: all")
    parser.add_argument("--only", help="this load alone")
    arguments = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("device_layers.py: no GPU: nothing is measured")
        return
    for name in [arguments.model] if arguments.model else MODELS:
        for load, lengths in loads(arguments.tokens):
            if arguments.only not in (None, load):
                continue
            for attention in [arguments.attention] if arguments.attention else ATTENTION:
                measure(torch, arguments, name, load, lengths, attention)
            if arguments.attention in (None, "varlen"):
                measure_head(torch, arguments, name, load, lengths)


if __name__ == "__main__":
    main()
