"""How long a checkpoint holds training up, beside torch.distributed.checkpoint's async save of as many bytes.

One rank each, on the same disk, taking turns. Sluice trains a LLaMA model whose parameters and moments take the given
bytes and says of each checkpoint how long it took to write and how long the run waited for it. The other program holds
tensors of as many bytes, calls `async_save` between matrix products, and measures how long that call takes and when its
future is done. Runs in the environment of `make parity`, which has torch.

    make bench-saving
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "integration"))

from harness import VOCABULARY, base_settings, hardware, make_documents, merged, to_toml, write_corpus  # noqa: E402

SLUICE = os.path.abspath(os.environ.get("SLUICE", HERE.parent / "build" / "sluice"))
HIDDEN, FFN_HIDDEN = 512, 1536
BYTES_PER_PARAMETER = 12  # FP32 master and two moments
SAVES = 3
STEPS_BETWEEN = 4
LINE = re.compile(r"saved checkpoint after (\d+) steps: .* in ([\d.]+) (\S+), for which the run waited ([\d.]+) (\S+)")
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60}

# What the other program does; its output is a JSON list of [blocked, written] in seconds.
TORCH_PROGRAM = r"""
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import torch
import torch.distributed.checkpoint as dcp

folder, elements, tensors, saves = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
state = {str(i): torch.rand(elements // tensors) for i in range(tensors)}
product = torch.rand(1024, 1024)
times = []
for save in range(saves):
    begin = time.perf_counter()
    future = dcp.async_save(state, checkpoint_id=f"{folder}/{save}", no_dist=True)
    blocked = time.perf_counter() - begin
    while not future.done():
        product @ product
    future.result()
    times.append([blocked, time.perf_counter() - begin])
print(json.dumps(times))
"""


def layers_for(size_bytes):
    layer = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * FFN_HIDDEN + 2 * HIDDEN
    return max(1, round((size_bytes / BYTES_PER_PARAMETER - 2 * VOCABULARY * HIDDEN) / layer))


def configure(folder, size_bytes):
    """A training run in `folder` that saves SAVES times and then stops."""
    model = {"model.layers": layers_for(size_bytes), "model.hidden": HIDDEN, "model.ffn_hidden": FFN_HIDDEN,
             "model.heads": 8, "model.kv_heads": 8}
    run = {"train.steps": SAVES * STEPS_BETWEEN + STEPS_BETWEEN - 1, "data.tokens_per_step": 128,
           "parallel.strategies": ["<1,1,1>"], "memory.device_gib": 12.0, "checkpoint.async": True,
           "checkpoint.every": STEPS_BETWEEN, "checkpoint.keep": 1}
    (folder / "run.toml").write_text(to_toml(merged(base_settings(), model | run)))


def saves_of_sluice(folder):
    """[(waited, written)] in seconds of the saves that were done behind training: at its end they have nothing to hide behind."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    done = subprocess.run([SLUICE, "train", "--config", "run.toml"], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return [(float(waited) * SECONDS[waited_unit], float(written) * SECONDS[unit])
            for _, written, unit, waited, waited_unit in LINE.findall(done.stderr[:done.stderr.rindex("\nstep ")])]


def saves_of_torch(folder, size_bytes):
    done = subprocess.run([sys.executable, "-c", TORCH_PROGRAM, str(folder / "torch"), str(size_bytes // 4), "64",
                           str(SAVES)], capture_output=True, text=True)
    shutil.rmtree(folder / "torch", ignore_errors=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def show(name, saves):
    blocked = statistics.median(saved[0] for saved in saves)
    written = statistics.median(saved[1] for saved in saves)
    shares = sorted(100 * saved[0] / saved[1] for saved in saves)
    print(f"{name:<36} {len(saves):>5} {written:>11.2f} {1e3 * blocked:>13.1f} {statistics.median(shares):>9.2f} %"
          f" {shares[-1]:>9.2f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="size of a checkpoint")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", help="where to write; default: TMPDIR")
    options = parser.parse_args()
    size_bytes = options.mib << 20
    ours, theirs = [], []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = pathlib.Path(name)
        write_corpus(folder / "corpus", make_documents())
        configure(folder, size_bytes)
        for _ in range(options.rounds):
            ours += saves_of_sluice(folder)
            shutil.rmtree(folder / "run")
            theirs += saves_of_torch(folder, size_bytes)
    print(f"{options.mib} MiB a checkpoint, {hardware()}")
    print(f"{'':<36} {'saves':>5} {'written (s)':>11} {'blocked (ms)':>13} {'share':>11} {'largest':>11}")
    show("sluice train, checkpoint.async", ours)
    show("torch.distributed.checkpoint", theirs)


if __name__ == "__main__":
    main()
