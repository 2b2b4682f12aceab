"""Fits data/rates/rates.json, what devices attain, on data/measured and data/published, or with --check compares.

An attention kernel attains R·l/(l + h) FLOP/s on sequences of l tokens: two numbers, which least squares of relative
errors finds by width, device and direction. Where a figure was measured without a mask, a row attends to twice as many
tokens as under a causal one, so h counts twice. Matrix products attain a share of what a search over shapes found
(products.csv). The share and the host's time of a layer are fitted together on two published fits of whole stages,
a800-7b and a800-32b (data/calibrations); a800-13b is left to judge by (bench/published.cpp).
"""

import csv
import json
import math
import pathlib
import sys

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
PATH = DATA / "rates" / "rates.json"
FITTED = ("a800-7b", "a800-32b")
LENGTHS = (4096, 8192, 16384, 32768)
A800_LINK = 160  # bytes a nanosecond, as the cluster preset says
A800_MEMORY = 1631
LINK_LATENCY_NS = 5e3
COLLECTIVES = 12  # of a layer under TP, forward and backward
PASSES = 3  # over a layer: forward, gradients of inputs, gradients of weights
BACKWARD = 2.5  # times the forward's products in attention


def table(name, **chosen):
    delimiter = "|" if name.endswith("psv") else ","
    with open(DATA / "measured" / name, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=delimiter))
    return [row for row in rows if all(row[key] == value for key, value in chosen.items())]


def line(points):
    """Of y = a + b·x the a and b with the least squares of (a + b·x − y) ÷ y."""
    rows = [(1 / y, x / y) for x, y in points]
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a1, b1 = (sum(row[i] for row in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    return (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant


def rate(rows):
    """FLOPs a nanosecond of very long sequences, and the length that attains half of them."""
    inverse, slope = line([(1 / int(row["length"]), 1 / float(row["tflops"])) for row in rows])
    half = max(0.0, slope / inverse) * (2 if rows[0]["mask"] == "full" else 1)
    return {"flops_per_ns": rounded(1e3 / inverse), "half_length": rounded(half)}


def rounded(value):
    return float(f"{value:.3g}")


def kernels(device, kernel, scale=1.0):
    """Of each width; a direction that nobody published keeps the nearest narrower width's relation to the forward."""
    found = []
    for width in sorted({int(row["width"]) for row in table("kernels.csv", device=device, kernel=kernel)}):
        rows = table("kernels.csv", device=device, kernel=kernel, width=str(width))
        entry = {"kernel": kernel, "width": width, "source": rows[0]["source"]}
        for direction in ("forward", "backward"):
            own = [row for row in rows if row["direction"] == direction]
            if own:
                entry[direction] = rate(own)
            else:
                narrower = found[-1]
                share = entry["forward"]["flops_per_ns"] / narrower["forward"]["flops_per_ns"]
                entry[direction] = {"flops_per_ns": rounded(narrower["backward"]["flops_per_ns"] / scale * share),
                                    "half_length": narrower["backward"]["half_length"]}
                entry["source"] += f"; its backward pass as the forward's relation at width {narrower['width']}"
            entry[direction]["flops_per_ns"] = rounded(entry[direction]["flops_per_ns"] * scale)
        found.append(entry)
    return found


def completed(entries, known):
    """With the widths that only another device has, as its relation to width 128 says."""
    of_128 = next(entry for entry in entries if entry["width"] == 128)
    known_128 = next(entry for entry in known if entry["width"] == 128)
    for other in known:
        if any(entry["width"] == other["width"] for entry in entries):
            continue
        entry = {"kernel": of_128["kernel"], "width": other["width"],
                 "source": f"width 128, by the relation of {other['kernel']} on H100 ({other['source']})"}
        for direction in ("forward", "backward"):
            share = other[direction]["flops_per_ns"] / known_128[direction]["flops_per_ns"]
            entry[direction] = {"flops_per_ns": rounded(of_128[direction]["flops_per_ns"] * share),
                                "half_length": other[direction]["half_length"]}
        entries.append(entry)
    return sorted(entries, key=lambda entry: entry["width"])


def table_kernel():
    """FlashAttention 2 on H100 by DistCA's table: equal documents that fill a micro-batch of 32K tokens, causal."""
    points = []
    for row in table("compute-attn-H100.psv", cp="1", tp="1"):
        documents = int(row["batch_size"])
        length = int(row["total_len"]) // documents
        if length < 512:
            continue
        flops = 2.0 * int(row["hqo"]) * int(row["d"]) * length * length * documents
        points.append({"length": length, "tflops": flops / float(row["total_latency(ms)"]) / 1e9, "mask": "causal"})
    return rate(points)


def stages():
    for name in FITTED:
        calibration = json.loads((DATA / "calibrations" / f"{name}.json").read_text(encoding="utf-8"))
        for row in calibration["schemes"]:
            tp, pp, _ = map(int, row["scheme"].strip("<>").split(","))
            if tp > 8:
                continue
            for length in LENGTHS:
                yield calibration["model"], tp, pp, length, row["a"] * length**2 + row["b"] * length + row["c"]


def stage_ns(model, tp, pp, length, rates, attention):
    """A stage's forward and backward pass, as src/cost/analytic.h counts them."""
    products, pass_ns = rates
    hidden, ffn = model["hidden_size"], model["intermediate_size"]
    layers = model["num_hidden_layers"] / pp
    token = 6 * (4 * hidden**2 + 3 * hidden * ffn) / tp / products
    token += PASSES * 2 * (14 * hidden + 3 * ffn) / tp / A800_MEMORY
    token += COLLECTIVES * 2 * hidden * (tp - 1) / tp / A800_LINK
    flops = 2 * hidden / tp * 128 / model["head_dim"]  # kernels are built for widths of 64, 128 and 256
    squares = sum(flops * times / attention[direction]["flops_per_ns"] *
                  (length**2 + attention[direction]["half_length"] * length)
                  for direction, times in (("forward", 1), ("backward", BACKWARD)))
    latency = COLLECTIVES * LINK_LATENCY_NS if tp > 1 else 0
    time = layers * (token * length + squares + PASSES * pass_ns + latency)
    if pp == 1:
        time += 6 * model["vocab_size"] * hidden / tp / products * length
    return time


def fitted_stages(attention):
    """Rates of products and a layer's pass: least squares of logarithms, by descent along each in turn."""
    rows = list(stages())

    def loss(rates):
        return sum(math.log(stage_ns(*row[:4], rates, attention) / row[4])**2 for row in rows)

    rates, step = [220e3, 300e3], 0.2
    best = loss(rates)
    while step > 1e-5:
        moved = False
        for at in range(len(rates)):
            for factor in (1 + step, 1 / (1 + step)):
                tried = [value * factor if i == at else value for i, value in enumerate(rates)]
                if (value := loss(tried)) < best:
                    best, rates, moved = value, tried, True
        if not moved:
            step /= 2
    return [rounded(value) for value in rates]


def collective(operation):
    rows = table("nccl_perf.csv", ngpu="8", op=operation)
    latency, ns_per_byte = line([(int(row["size_bytes"]) * 7 / 8, float(row["t_us_out"]) * 1e3) for row in rows])
    return rounded(latency), rounded(1 / ns_per_byte)


def made():
    cudnn, flash2 = kernels("h100", "cuDNN"), kernels("h100", "FlashAttention 2")
    of_128 = next(entry for entry in flash2 if entry["width"] == 128)
    a100 = {"kernel": "FlashAttention 2", "width": 128}
    for direction, peak_share in (("forward", 0.73), ("backward", 0.63)):
        a100[direction] = {"flops_per_ns": rounded(peak_share * 312e3),
                           "half_length": of_128[direction]["half_length"]}
    a100["source"] = ("FlashAttention-2 (arXiv 2307.08691): up to 73 % of A100's 312 TFLOP/s forward and 63 % backward; "
                      f"lengths as on H100 ({of_128['source']})")
    products, pass_ns = fitted_stages(a100)
    achievable = {row["device"]: row for row in table("products.csv")}
    share = products / float(achievable["a100"]["tflops"]) / 1e3
    fits = ("least squares on the published stage times of Hydraulis, a800-7b and a800-32b "
            "(data/published/scheme_times.csv)")

    def of_products(device):
        row = achievable[device]
        float8 = row["float8_tflops"]
        return {"flops_per_ns": rounded(share * float(row["tflops"]) * 1e3),
                **({"float8_speedup": rounded(float(float8) / float(row["tflops"]))} if float8 else {}),
                "source": f"{share:.3f} of {row['tflops']} TFLOP/s, {row['source']}; the share from A800: {fits}"}

    waves = sorted(float(row["ms_per_layer"]) for row in table("host.csv") if float(row["ms_per_layer"]) > 1)
    # A wave's attention is started once in a forward pass, and its two gradients in a backward pass.
    host = {"layer_pass_ns": pass_ns, "ring_step_ns": rounded(waves[len(waves) // 2] * 1e6 / 3),
            "source": f"a layer's pass: {fits}; a step of a ring, a third of forward and backward pass: "
                      f"{table('host.csv')[0]['source']}"}
    gather, scatter = collective("all_gather"), collective("reduce_scatter")
    nccl = {"latency_ns": rounded((gather[0] + scatter[0]) / 2),
            "bytes_per_ns": rounded((gather[1] + scatter[1]) / 2),
            "source": "all-gather and reduce-scatter of NCCL on 8 H100s of a node, 8 MB to 8 GB: "
                      "github.com/hao-ai-lab/DistCA at 2afd219 (data/measured/nccl_perf.csv)"}
    h200 = completed(kernels("h200", "cuDNN"), cudnn)
    # Both are the same chip at other clocks.
    b200 = completed(kernels("gb200", "cuDNN", float(achievable["b200"]["peak_tflops"]) /
                             float(achievable["gb200"]["peak_tflops"])), cudnn)
    for entry in b200:
        entry["source"] += "; by the peaks of B200 and GB200"
    distca = {"kernel": "FlashAttention 2", "width": 128, "forward": table_kernel(),
              "source": "github.com/hao-ai-lab/DistCA at 2afd219 (data/measured/compute-attn-H100.psv); its backward "
                        f"pass by the relation of {of_128['source']}"}
    distca["backward"] = {"flops_per_ns": rounded(distca["forward"]["flops_per_ns"] *
                                                  of_128["backward"]["flops_per_ns"] / of_128["forward"]["flops_per_ns"]),
                          "half_length": of_128["backward"]["half_length"]}
    ampere = completed([a100], flash2)
    return {"schema": "sluice.rates/1", "host": host, "devices": [
        {"device": "a100", "products": of_products("a100"), "attention": ampere},
        {"device": "h100-flash-attention-2", "products": of_products("h100"), "attention": [distca], "collective": nccl},
        {"device": "h100", "products": of_products("h100"), "attention": cudnn, "collective": nccl},
        {"device": "h200", "products": of_products("h200"), "attention": h200, "collective": nccl},
        {"device": "b200", "products": of_products("b200"), "attention": b200, "collective": nccl},
    ]}


def main():
    content = json.dumps(made(), indent=1) + "\n"
    if "--check" not in sys.argv:
        PATH.parent.mkdir(exist_ok=True)
        PATH.write_text(content, encoding="utf-8")
    elif not PATH.is_file() or PATH.read_text(encoding="utf-8") != content:
        sys.exit(f"{PATH}: not what tools/device_rates.py makes; run it")


if __name__ == "__main__":
    main()
