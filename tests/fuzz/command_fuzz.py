"""Runs the program's commands on damaged files and odd arguments, each as a process of its own.

Every process has to end by itself within the limit of processor time, or to say by then how long it will take, with an
exit code that docs/formats.md names and within a gigabyte beyond what the sound command takes. Nothing of it reaches the
terminal raw, no library's exception is named, and a fault is one line that begins with the program's name. The same seed
runs the same cases.
"""

import argparse
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

import damage  # noqa: E402
import model_folders  # noqa: E402
from dependencies import DEPENDENCIES  # noqa: E402
from start_once import StartOnce  # noqa: E402

CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
INTERNAL = re.compile(rb"internal error|json\.exception|terminate called|std::|Sanitizer|runtime error|basic_string|vector::")
# What was asked for takes long, ten million steps say, and the process says how long.
FORESEEN = re.compile(rb"\d % after .+ left")
SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 384, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 512, "tie_word_embeddings": False}
CLUSTER = {"schema": "sluice.cluster/1", "name": "mine", "nodes": 2, "gpus_per_node": 4,
           "device_memory_bytes": 20_000_000_000, "flops_per_ns": 1e4,
           "intra_node": {"bytes_per_ns": 100.0, "latency_ns": 5e3},
           "inter_node": {"bytes_per_ns": 10.0, "latency_ns": 1e4}, "nics_per_node": 4, "host_bytes_per_ns": 20.0,
           "host_memory_bytes": 1_000_000_000_000}
# A process that waits takes no processor time: it counts as hung after that many times the limit on the clock.
CLOCK_FACTOR = 30
# Has what tables and tokenizer.json files are read with.
TOOLS = DEPENDENCIES / "tools/bin/python"
WRITER = pathlib.Path(__file__).resolve().parent / "python_files.py"
SMALL = ["--context", "2048", "--tokens-per-step", "6000"]


def run_configuration(folder):
    return f"""[model]
layers = 3
hidden = 64
heads = 4
kv_heads = 2
ffn_hidden = 96
vocab = 384
rope_theta = 10000.0
[data]
train = [["{folder}/corpus/corpus", 1.0]]
validation_fraction = 0.1
context_length = 128
tokens_per_step = 512
seed = 3
[train]
steps = 2
threads = 1
[optimizer]
lr = 1e-3
betas = [0.9, 0.95]
warmup_steps = 1
[parallel]
strategies = ["<1,1,1>"]
select = "best"
calibration = "analytic"
gpus_per_node = 4
[cluster]
preset = "local"
nodes = 1
[memory]
device_gib = 1.0
margin_gib = 0.1
offload = "auto"
[checkpoint]
every = 2
keep = 2
[log]
dir = "{folder}/run"
tensorboard = true
trace_steps = [1]
"""


# Sections that a plain run has not. Preferences need no reward functions, which would be somebody's program.
REWARDED = """[rl]
algorithm = "dapo"
prompts_per_step = 2
group = 2
max_response = 16
reward = ["exact", "regex:^[0-9 ]+"]
clip_low = 0.2
clip_high = 0.28
overlong_buffer = 4
cache_gib = 0.1
held_out = 4
[link]
pull = "int8-difference"
push = ["bfloat16", "int8"]
gather = "auto"
[watch]
on_slow = "plan"
critical_path_every = 10
"""


def safetensors(path):
    header = json.dumps({"__metadata__": {"format": "pt"},
                         "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                         "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(32))


class Sound:
    """A folder of undamaged files, and the commands that read them: (files that may be damaged, arguments)."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        at = folder.joinpath
        (folder / "hf").mkdir()
        at("hf/config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", **SHAPE}))
        at("cluster.json").write_text(json.dumps(CLUSTER))
        lengths = [16 + 37 * i % 1900 for i in range(60)]
        at("lengths.txt").write_text("# tokens\n" + "\n".join(map(str, lengths)) + "\n")
        at("strategies.txt").write_text("# mine\n1x<2,2,1> + 2x<1,1,2>\n8x<1,1,1>\n")
        at("text.txt").write_text("\n\n\n".join(f"document {i} " + "word " * (i % 50) for i in range(200)))
        at("documents.jsonl").write_text("\n".join(json.dumps({"text": f"document {i}"}) for i in range(50)))
        at("run.toml").write_text(run_configuration(folder))
        at("rewarded.toml").write_text(run_configuration(folder) + REWARDED)
        at("prompts.jsonl").write_text("".join(json.dumps({"ids": list(range(i, 3 * i + 2))}) + "\n" for i in range(6)))
        self.families = [model_folders.copy_family(family, at(family)) for family in model_folders.FAMILIES]
        self.packed = model_folders.pack_mxfp4(at("mxfp4"))
        safetensors(at("tensors.safetensors"))
        self.has_training = self.call("train", "--help").returncode == 0
        self.make("lengths", at("lengths.txt"), "--out", at("lengths.json"))
        self.make("corpus", "build", at("text.txt"), "--out", at("corpus"), "--train-tokenizer", 384, "--delimiter", "\n\n\n")
        planning = ["--gpus", 8, "--cluster", at("cluster.json"), "--model", at("hf"), "--lengths", at("lengths.json"), *SMALL]
        self.make("propose", *planning, "--max", 2, "--max-cp", 2, "--out", at("strategies.json"))
        self.make("plan", *planning, "--strategies", at("strategies.txt"), "--out", at("plan.json"))
        self.make("simulate", *planning, "--strategies", at("strategies.txt"), "--steps", 2, "--compare", "megatron",
                  "--out", at("simulated"), "--trace-steps", 1)
        self.commands = self.torch_free(planning)
        if TOOLS.exists():
            self.commands += self.in_python()
        if self.has_training:
            self.make("train", "--config", at("run.toml"))
            self.make("export", at("run"), "--out", at("exported"))
            self.commands += self.torch()
        self.files = {path: path.read_bytes() for files, _ in self.commands for path in files}

    def call(self, *arguments):
        return subprocess.run([self.program, *map(str, arguments)], capture_output=True)

    def make(self, *arguments):
        result = self.call(*arguments)
        if result.returncode != 0:
            raise RuntimeError(f"{arguments}: {result.stderr.decode()}")

    def torch_free(self, planning):
        at = self.folder.joinpath
        table = pathlib.Path(__file__).resolve().parents[2] / "data/calibrations/a800-7b.json"
        calibration = at("calibration.json")
        shutil.copy(table, calibration)
        corpus = [at("corpus/corpus.idx"), at("corpus/corpus.bin")]
        simulated = [at("simulated") / name for name in ("simulation.json", "metrics.jsonl", "trace-1.json")]
        inspected = ["hf/config.json", "lengths.json", "strategies.json", "plan.json", "calibration.json", "run.toml",
                     "simulated/metrics.jsonl", "simulated/trace-1.json", "tensors.safetensors", "corpus/tokenizer.model"]
        commands = [([at(name)], ["inspect", at(name)]) for name in inspected]
        return commands + [
            (corpus, ["inspect", at("corpus/corpus")]),
            (corpus, ["lengths", at("corpus/corpus"), "--json"]),
            ([*corpus, at("corpus/tokenizer.model")], ["corpus", "show", at("corpus/corpus"), 3, 7]),
            (corpus, ["corpus", "merge", at("corpus/corpus"), at("corpus/corpus"), "--out", "{out}/merged"]),
            ([at("lengths.txt")], ["lengths", at("lengths.txt")]),
            ([at("lengths.json")], ["lengths", at("lengths.json"), "--svg", "{out}/lengths.svg"]),
            ([at("hf/config.json"), at("cluster.json"), at("strategies.txt"), at("lengths.json")],
             ["plan", *planning, "--strategies", at("strategies.txt"), "--json"]),
            ([at("strategies.json"), at("cluster.json")],
             ["plan", *planning, "--strategies", at("strategies.json"), "--explain"]),
            ([calibration], ["plan", "--gpus", 16, "--calibration", calibration, "--lengths", at("lengths.txt"), *SMALL,
                             "--strategies", "4x<4,1,1>"]),
            ([at("lengths.txt"), at("cluster.json")], ["propose", *planning[:-6], "--lengths", at("lengths.txt"), *SMALL,
                                                       "--max", 2, "--max-cp", 2]),
            ([at("hf/config.json"), at("cluster.json")], ["simulate", *planning, "--strategies", at("strategies.txt"),
                                                          "--steps", 1, "--out", "{out}/simulated"]),
            ([at("run.toml")], ["simulate", "--config", at("run.toml"), "--steps", 1]),
            ([at("run.toml"), *corpus], ["plan", "--config", at("run.toml"), "--step", 3]),
            ([at("run.toml")], ["plan", "--config", at("run.toml"), "--batches", 2, "--json"]),
            (simulated, ["report", at("simulated"), "--out", "{out}/report.html"]),
            *[([folder / "config.json"], ["propose", "--gpus", 8, "--cluster", at("cluster.json"), "--model", folder, "--lengths",
                                          at("lengths.txt"), *SMALL, "--max", 2, "--max-cp", 2])
              for folder in (*self.families, self.packed)],
            ([at("text.txt")], ["corpus", "build", at("text.txt"), "--out", "{out}/corpus", "--tokenizer",
                                at("corpus/tokenizer.model"), "--delimiter", "\n\n\n"]),
            ([at("documents.jsonl"), at("corpus/tokenizer.model")],
             ["corpus", "build", at("documents.jsonl"), "--out", "{out}/corpus", "--tokenizer", at("corpus/tokenizer.model")]),
        ]

    def in_python(self):
        """Of what a child process in Python reads."""
        at = self.folder.joinpath
        subprocess.run([TOOLS, "-B", WRITER, self.folder], check=True)
        build = ["--out", "{out}/corpus", "--tokenizer"]
        tables = [([at(name)], ["corpus", "build", at(name), *build, at("corpus/tokenizer.model")])
                  for name in ("table.parquet", "table.arrow")]
        tokenizer = [at("bytes/tokenizer.json"), at("bytes/tokenizer_config.json")]
        return tables + [(tokenizer, ["corpus", "build", at("documents.jsonl"), *build, at("bytes")])]

    def torch(self):
        at = self.folder.joinpath
        step = at("run/checkpoints/step-2")
        checkpoint = [step / "manifest.json", step / "manifest.json", *step.glob("*.safetensors")]
        exported = [at("exported/config.json"), *at("exported").glob("*.safetensors")]
        run = [at("run") / name for name in ("config.toml", "calibration.json", "metrics.jsonl", "trace-1.json")]
        corpus = ["--corpus", at("corpus/corpus"), "--context-length", 128, "--threads", 1]
        return [
            ([at("run.toml"), at("run.toml"), at("corpus/corpus.idx")], ["train", "--dry-run", "--config", at("run.toml")]),
            ([at("rewarded.toml")], ["train", "--dry-run", "--config", at("rewarded.toml")]),
            (checkpoint, ["inspect", step]),
            (checkpoint, ["export", step, "--out", "{out}/model"]),
            (checkpoint, ["eval", "--model", step, *corpus]),
            (checkpoint, ["generate", "--model", step, "--prompt", "word", "--tokens", 4, "--threads", 1]),
            (exported, ["import", at("exported"), "--out", "{out}/imported"]),
            (exported, ["eval", "--model", at("exported"), *corpus]),
            (run, ["report", at("run"), "--out", "{out}/report.html"]),
            *[([at("prompts.jsonl"), folder / "config.json", folder / "model.safetensors"],
               ["generate", "--model", folder, "--prompts", at("prompts.jsonl"), "--out", "{out}/said.jsonl", "--tokens", 3,
                "--threads", 1]) for folder in (*self.families, self.packed)],
            ([self.packed / "config.json", self.packed / "model.safetensors"], ["import", self.packed, "--out", "{out}/imported"]),
        ]


def odd_arguments(arguments, rng):
    """One word becomes another."""
    arguments = list(arguments)
    at = rng.randrange(1, len(arguments))
    words = [number for number in damage.NUMBERS] + [escape for escape in damage.ESCAPES if "\0" not in escape]
    arguments[at] = rng.choice(words)
    return arguments


class Each:
    """Starts the program anew for every case."""

    def __init__(self, program):
        self.program = program

    def start(self, arguments, folder, files, seconds):
        with open(files[0], "wb") as stdout, open(files[1], "wb") as stderr:
            self.process = subprocess.Popen([self.program, *arguments], stdin=subprocess.DEVNULL, stdout=stdout,
                                            stderr=stderr, cwd=folder)
        resource.prlimit(self.process.pid, resource.RLIMIT_CPU, (seconds, seconds))
        return self.process.pid

    def wait(self):
        """(what wait() says, seconds of processor time, peak bytes)"""
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


class Case:
    """One command on a copy of the sound folder in which a file is damaged, or with an odd argument."""

    def __init__(self, sound, seed):
        rng = random.Random(seed)
        files, arguments = rng.choice(sound.commands)
        self.arguments, self.damaged = [str(argument) for argument in arguments], None
        if rng.randrange(8) == 0:
            self.arguments = odd_arguments(self.arguments, rng)
        else:
            self.damaged = rng.choice(files)
            self.content = damage.damaged(self.damaged, sound.files[self.damaged], rng)

    def run(self, sound, starter, folder, seconds):
        """(exit code, peak bytes, stdout, stderr); None for the code: it had to be ended."""
        copy, out = folder / "copy", folder / "out"
        for each in (copy, out):
            shutil.rmtree(each, ignore_errors=True)
        out.mkdir()
        arguments = [argument.replace("{out}", str(out)) for argument in self.arguments]
        if self.damaged:
            shutil.copytree(sound.folder, copy)
            (copy / self.damaged.relative_to(sound.folder)).write_bytes(self.content)
            arguments = [argument.replace(str(sound.folder), str(copy)) for argument in arguments]
        process = starter.start(arguments, folder, [folder / "stdout", folder / "stderr"], seconds)
        timer = threading.Timer(CLOCK_FACTOR * seconds, os.kill, (process, signal.SIGKILL))
        timer.start()
        status, used_seconds, peak_bytes = starter.wait()
        # The system counts in ticks when it ends a process at its limit, and those of a shared machine are not whole.
        hung = not timer.is_alive() or used_seconds >= 0.8 * seconds
        timer.cancel()
        code = None if hung else os.waitstatus_to_exitcode(status)
        return code, peak_bytes, (folder / "stdout").read_bytes(), (folder / "stderr").read_bytes()


def faults_of(code, peak_bytes, stdout, stderr, most_bytes):
    if code is None:
        if not FORESEEN.search(stderr):
            yield "it did not end in time"
        return
    if code not in (0, 1, 2, 3):
        yield f"it ended with {code}"
    if peak_bytes > most_bytes:
        yield f"it took {peak_bytes >> 20} MiB"
    if CONTROL.search(stdout) or CONTROL.search(stderr):
        yield "it printed control characters"
    if INTERNAL.search(stderr):
        yield "it named its insides"
    if code in (1, 2, 3):
        own = [line for line in stderr.split(b"\n") if line.startswith((b"sluice: ", b"[config] "))]
        if not stderr.strip():
            yield "it failed without a word"
        elif stderr.count(b"\n") > 6:
            yield "it took more than a few lines"
        elif not own and code != 1 and b": " not in stderr:
            yield "it named no way out"


def worker(sound, starter, seeds, seconds, most_bytes, found, codes):
    with tempfile.TemporaryDirectory() as name:
        for seed in seeds:
            case = Case(sound, seed)
            result = case.run(sound, starter, pathlib.Path(name), seconds)
            codes[result[0]] = codes.get(result[0], 0) + 1
            for fault in faults_of(*result, most_bytes):
                file = case.damaged.relative_to(sound.folder) if case.damaged else "its arguments"
                shown = " ".join(case.arguments).encode("unicode_escape").decode()
                message = result[3][-600:].decode(errors="backslashreplace").encode("unicode_escape").decode()
                found.append(f"case {seed}: {fault}: {shown} with {file} damaged: {message}")
                print(found[-1], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=os.environ.get("SLUICE", "build/sluice"))
    parser.add_argument("--count", type=int, default=60, help="cases")
    parser.add_argument("--seed", type=int, default=1, help="of the first case; the next one's is one more")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seconds", type=int, default=10, help="of processor time after which a process counts as hung")
    parser.add_argument("--mib", type=int, default=1024, help="that a process may take beyond the sound commands")
    parser.add_argument("--preload", type=pathlib.Path, default=os.environ.get("START_ONCE"), metavar="LIBRARY",
                        help="the built start_once.cpp: loads the program once and not for every case")
    options = parser.parse_args()
    program = str(pathlib.Path(options.sluice).resolve())
    found, codes = [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "sound"
        folder.mkdir()
        sound = Sound(program, folder)
        usual_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        most_bytes = usual_bytes + (options.mib << 20)
        seeds = range(options.seed, options.seed + options.count)
        starters = [StartOnce(program, options.preload) if options.preload else Each(program) for _ in range(options.jobs)]
        threads = [threading.Thread(target=worker, args=(sound, starter, seeds[job::options.jobs], options.seconds,
                                                         most_bytes, found, codes))
                   for job, starter in enumerate(starters)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ended = ", ".join(f"{count} with {code}" for code, count in sorted(codes.items(), key=str))
    print(f"{options.count} commands, {len(found)} faults; ended: {ended}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
