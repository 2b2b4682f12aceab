"""Makes data/calibrations/*.json from the published figures in data/published, or with --check compares.

Times are published in milliseconds and turned into nanoseconds here, once. Rows whose fit is degenerate are
left out of `schemes` and listed under `refused` (docs/formats.md has the rule).
"""

import csv
import decimal
import json
import pathlib
import sys

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
ORIGIN = ("quoted from the planner of Hydraulis (arXiv 2412.07894): github.com/PKU-DAIR/Hetu at 9e47240, "
          "examples/hydraulis/strategy/{file}, lines {lines}, and cost_model.py, lines 50-85; links and update: "
          "the data sheets that the cluster preset {preset} names")
HARDWARE = {"a800": "nodes of eight A800 80 GB", "a100": "nodes of eight A100 40 GB"}
# Width of the MLP; heads are 128 wide or, at 32B, 104.
FFN_HIDDEN = {4096: 11008, 5120: 13824, 6656: 17920}
HEADS = {4096: 32, 5120: 40, 6656: 64}
LINKS = {"a800": (160, 20), "a100": (240, 20)}  # bytes a nanosecond inside a node and between nodes
MEMORY = {"a800": 1631, "a100": 1244}  # bytes a nanosecond; an update reads and writes 30 of an element
PARAMETER_BYTES = 16  # 2 of compute, 2 of gradient, 12 of owner
MIB = 1 << 20


def table(name, calibration):
    with open(DATA / "published" / name, newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["calibration"] == calibration]


def nanoseconds(milliseconds):
    return decimal.Decimal(milliseconds) * 1_000_000


def scheme_rows(times, memory, by_tp):
    for row in times:
        tp, pp = int(row["tp"]), int(row["pp"])
        stage_bytes = int(memory["layers"]) // pp * int(memory["hidden"]) // tp
        yield {
            "scheme": f"<{tp},{pp},1>",
            "a": float(nanoseconds(row["a_ms"])),
            "b": float(nanoseconds(row["b_ms"])),
            "c": round(nanoseconds(row["c_ms"])),
            "forward_share": 1 / 3,
            "bytes_per_token": stage_bytes * int(by_tp[tp]["activation_bytes_per_hidden"]),
            "util_len": int(by_tp[tp]["util_len"]),
        }, row


def is_degenerate(a_gpus, median):
    return a_gpus * 5 > median * 8 or a_gpus * 8 < median * 5


def sieved(times, memory, by_tp):
    """Rows that are kept and rows that are refused."""
    rows = list(scheme_rows(times, memory, by_tp))
    a_gpus = [row["a"] * int(source["tp"]) * int(source["pp"]) for row, source in rows]
    median = sorted(a_gpus)[len(a_gpus) // 2]
    kept = [row for (row, _), value in zip(rows, a_gpus) if not is_degenerate(value, median)]
    refused = [row for (row, _), value in zip(rows, a_gpus) if is_degenerate(value, median)]
    return kept, refused


def model(memory):
    hidden = int(memory["hidden"])
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": hidden, "intermediate_size": FFN_HIDDEN[hidden],
        "num_hidden_layers": int(memory["layers"]), "num_attention_heads": HEADS[hidden],
        "num_key_value_heads": HEADS[hidden], "head_dim": hidden // HEADS[hidden], "vocab_size": 32000,
        "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }


def memory_model(memory):
    hidden = int(memory["hidden"])
    free_mib = int(memory["bound_mib"]) - int(memory["safe_mib"]) - int(memory["gap_mib"])
    owner_bytes = int(decimal.Decimal(memory["sharded_share"]) * PARAMETER_BYTES)
    return {
        "device_bytes": free_mib * MIB, "element_bytes": 2,
        "accumulator_bytes": PARAMETER_BYTES - owner_bytes - 2, "owner_bytes_per_parameter": owner_bytes,
        "transient_bytes_per_token": 0, "logits_chunk_bytes": 0,
        "layer_parameters": int(memory["state_bytes_per_hidden2"]) * hidden * hidden // PARAMETER_BYTES,
        "end_parameters": hidden * int(memory["vocab"]),
    }


def calibration(name):
    times = table("scheme_times.csv", name)
    memory, = table("memory.csv", name)
    by_tp = {int(row["tp"]): row for row in table("tensor_parallel.csv", name)}
    gpu = name.split("-")[0]
    lines = ", ".join(sorted({row["source_lines"] for row in (*times, memory, *by_tp.values())}))
    kept, refused = sieved(times, memory, by_tp)
    intra, inter = LINKS[gpu]
    return {
        "schema": "sluice.calibration/1",
        "model": model(memory),
        "hardware": HARDWARE[gpu],
        "source": ORIGIN.format(file=memory["source_file"], lines=lines, preset=gpu + "x8"),
        "schemes": kept,
        "refused": refused,
        "links": {"intra": {"latency_ns": 5000, "bytes_per_s": intra * 10**9},
                  "inter": {"latency_ns": 10000, "bytes_per_s": inter * 10**9}},
        "memory": memory_model(memory),
        "update_ps_per_element": round(30_000 / MEMORY[gpu]),
        "gpus_per_node": int(memory["gpus_per_node"]),
    }


def to_text(value):
    """JSON with a line for each member, and for each row of a list of objects."""
    members = []
    for key, member in value.items():
        if isinstance(member, list) and member:
            body = "[\n    " + ",\n    ".join(json.dumps(row) for row in member) + "\n  ]"
        else:
            body = json.dumps(member)
        members.append(f"  {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def main():
    with open(DATA / "published" / "memory.csv", newline="", encoding="utf-8") as file:
        names = [row["calibration"] for row in csv.DictReader(file)]
    stale = []
    for name in names:
        path = DATA / "calibrations" / f"{name}.json"
        content = to_text(calibration(name))
        if "--check" not in sys.argv:
            path.write_text(content, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != content:
            stale.append(str(path))
    if stale:
        sys.exit(f"{', '.join(stale)}: not what tools/published_calibrations.py makes; run it")


if __name__ == "__main__":
    main()
