"""What the integration tests share: a tiny corpus, runs of the real program, and what runs leave behind.

Needs Python's standard library only. $SLUICE names the program; every test works in a directory of its own
that is removed afterwards.
"""

import array
import contextlib
import ctypes
import functools
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from dependencies import DEPENDENCIES  # noqa: E402
from start_once import Commands  # noqa: E402
from tensor_files import read_tensors  # noqa: E402

SLUICE = os.environ.get("SLUICE", "build/sluice")
VOCABULARY = 64
RUN_TIMEOUT_S = 600  # after which a run hangs: no test depends on how long one takes
EXIT_SKIPPED = 77  # of a program all of whose tests were skipped
# What tools/bootstrap --test makes: an environment with torch, its launcher, transformers, and one with PEFT.
TRANSFORMERS_PYTHON = DEPENDENCIES / "parity/bin/python"
PEFT_PYTHON = DEPENDENCIES / "parity-peft/bin/python"
TORCHRUN = [str(TRANSFORMERS_PYTHON), "-m", "torch.distributed.run"]
WAIT_ALL = 0x40000000  # __WALL: for whoever is traced, too

# Enough strategies that steps differ: tensor and pipeline parallel pipelines of unequal size.
STRATEGIES = ["<2,1,1> + 2x<1,1,1>", "<1,2,1> + <2,1,1>", "4x<1,1,1>"]


def write_corpus(prefix, documents):
    """Megatron's .bin and .idx of lists of tokens below 65,500, written without the program's help."""
    with open(f"{prefix}.bin", "wb") as tokens:
        for document in documents:
            tokens.write(struct.pack(f"<{len(document)}H", *document))
    offsets, offset_bytes = [], 0
    for document in documents:
        offsets.append(offset_bytes)
        offset_bytes += 2 * len(document)
    count = len(documents)
    with open(f"{prefix}.idx", "wb") as index:
        index.write(struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, count, count + 1))
        index.write(struct.pack(f"<{count}i", *map(len, documents)))
        index.write(struct.pack(f"<{count}q", *offsets))
        index.write(struct.pack(f"<{count + 1}q", *range(count + 1)))


def make_documents(count=300, longest=100, seed=7):
    """Random walks over the vocabulary, most of them short: something that a model can learn."""
    return [list(walk) for walk in random_walks(count, longest, seed)]


@functools.cache
def random_walks(count, longest, seed):
    """The documents of make_documents, walked once for all tests of this process."""
    chance = random.Random(seed)
    documents = []
    for _ in range(count):
        length = 2 + int((longest - 2) * chance.random() ** 3)
        token = chance.randrange(VOCABULARY)
        document = []
        for _ in range(length):
            document.append(token)
            token = (token + chance.choice((1, 1, 1, 5))) % VOCABULARY
        documents.append(tuple(document))
    return tuple(documents)


# Runs that end in something other than a vocabulary, on what write_head_corpora writes.
HEADS = [{"head__kind": "classify", "head__labels": ["a", "b", "c"], "data__train": [["labelled", 1.0]]},
         {"head__kind": "reward", "head__rejected": ["rejected"], "head__pairs_per_step": 6, "data__train": [["chosen", 1.0]]}]


def write_head_corpora(directory):
    """Documents whose first token says their class; and better and worse answers, of which the pairs say by how much."""
    documents = make_documents(60)
    for name, seed in (("labelled", 7), ("chosen", 8), ("rejected", 9)):
        write_corpus(directory / name, documents if name == "labelled" else make_documents(60, seed=seed))
    labels = [document[0] % 3 for document in documents]
    (directory / "labelled.labels").write_text("".join(f"{label}\n" for label in labels))
    (directory / "chosen.labels").write_text("".join(f"{i % 4 / 8}\n" for i in range(60)))


def base_settings():
    """The configuration of a run that takes seconds, as {section: {key: value}}."""
    return {
        "model": {"layers": 4, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 64, "vocab": VOCABULARY},
        "data": {"train": [["corpus", 1.0]], "context_length": 96, "tokens_per_step": 512, "seed": 3},
        "train": {"steps": 8, "threads": 1, "dtype": "float32", "device": "cpu"},
        "optimizer": {"lr": 1e-2, "warmup_steps": 3},
        "parallel": {"strategies": STRATEGIES, "select": "cycle", "calibration": "analytic"},
        "memory": {"device_gib": 1.0, "margin_gib": 0.1},
        # Behind training, which steps are saved depends on the disk; tests that want that say so.
        "checkpoint": {"every": 0, "keep": 2, "async": False},
        "log": {"dir": "run", "tensorboard": False},
    }


def merged(settings, changes):
    """`settings` with {"section.key": value} on top."""
    result = {section: dict(keys) for section, keys in settings.items()}
    for name, value in changes.items():
        section, key = name.split(".", 1)
        result.setdefault(section, {})[key] = value
    return result


def to_toml(settings):
    """JSON's texts, numbers, truths and lists are TOML's too."""
    lines = []
    for section, keys in settings.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def free_port(low=10_000, high=30_000):
    """A port that was free a moment ago, in [low, high): by default below those that systems hand out themselves, so that
    nobody gets it meanwhile who didn't ask for it."""
    for port in random.sample(range(low, high), 50):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]
    raise RuntimeError(f"no free port from {low} to {high}")


def environment(**variables):
    """This process's environment without traces of a launcher, with `variables` on top."""
    launchers = ("SLUICE_RANK", "SLURM_", "OMPI_", "PMI", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    return {**clean, **{name: str(value) for name, value in variables.items()}}


def children(process_id):
    """The ids of a process's children, oldest first; none when it has ended."""
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()]
    except OSError:
        return []


def local_rank(process_id):
    """Which rank of the local launcher's a process is, by its name; None if it is none, or has ended."""
    with contextlib.suppress(OSError):
        name = pathlib.Path(f"/proc/{process_id}/comm").read_text()
        if name.startswith("sluice rank "):
            return int(name.split()[2])
    return None


def rank_processes(launcher_id):
    """{rank: process id} of a local launcher's ranks that have begun."""
    ranks = {local_rank(child): child for child in children(launcher_id)}
    ranks.pop(None, None)
    return ranks


def alive(process_id):
    """Whether the process runs: zombies don't."""
    try:
        return pathlib.Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def stop_thread(thread_id):
    """Makes one thread of a process stand still, as a debugger would; False where the system forbids it."""
    seize, interrupt = 0x4206, 0x4207
    ptrace = ctypes.CDLL(None).ptrace
    return ptrace(seize, thread_id, None, None) == 0 and ptrace(interrupt, thread_id, None, None) == 0


def missing(path):
    """Why a test that needs what bootstrap makes there is skipped; empty where it is there."""
    return "" if path.exists() else f"{path} is not there: tools/bootstrap --test installs it"


def torchrun_missing():
    return missing(TRANSFORMERS_PYTHON)


def main(arguments=None):
    """Runs the test classes that the command line, or `arguments`, names, or all; ends with EXIT_SKIPPED where nothing could
    run."""
    program = unittest.main(argv=[sys.argv[0], *(sys.argv[1:] if arguments is None else arguments)], verbosity=2, exit=False)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    nothing_ran = result.testsRun <= len(result.skipped)  # newer Pythons count no test of a skipped class
    sys.exit(EXIT_SKIPPED if result.skipped and nothing_ran else 0)


def hardware():
    """One line on this machine."""
    processor = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                      if line.startswith("model name")), "unknown processor")
    kibibytes = int(pathlib.Path("/proc/meminfo").read_text().split()[1])
    return f"{os.cpu_count()} x {processor}, {kibibytes / 2**20:.0f} GiB, Linux {os.uname().release}"


def revision():
    """The commit that was tested, or nothing outside a repository."""
    described = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=pathlib.Path(__file__).parent, text=True,
                               capture_output=True, check=False)
    return described.stdout.strip()


def recorded_revision():
    """The commit that figures are recorded of. SystemExit where the tree has changes that no commit has, other than pages
    and files of results, which recording itself changes."""
    root = pathlib.Path(__file__).resolve().parents[2]
    changed = subprocess.run(["git", "status", "--porcelain", "--", ".", ":!bench/results"], cwd=root, text=True,
                             capture_output=True, check=False)
    if changed.returncode != 0:
        sys.exit(f"figures are recorded in a clone of the repository: {changed.stderr.strip()}")
    if changed.stdout:
        names = [line[3:] for line in changed.stdout.splitlines()]
        sys.exit(f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''} differ from the last commit, and figures are of "
                 "a commit: commit the changes, or take them back")
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, text=True, capture_output=True,
                          check=True).stdout.strip()


def wait_until(condition, timeout_s, pause_s=0.002):
    """Whether `condition` came true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True


def records(run):
    """The lines of a run's metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class LineCount:
    """How many lines a file has that another process writes: read again only when its size is another one, for tests that
    ask many times a second."""

    def __init__(self, path):
        self.path, self.size, self.lines = path, 0, 0

    def now(self):
        """0 while there is no file."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size != self.size:
            content = self.path.read_bytes()
            self.size, self.lines = len(content), content.count(b"\n")
        return self.lines


def losses(run):
    """{step: (loss, gradient norm)} of a run; a step that stands there twice is an error."""
    found = {}
    for record in records(run):
        if "loss" not in record:
            continue
        if record["step"] in found:
            raise AssertionError(f"step {record['step']} stands twice in {run}/metrics.jsonl")
        found[record["step"]] = (record["loss"], record["grad_norm"])
    return found


def fallbacks(run):
    """What kept a run's steps and evaluations from the planner's own plans, one text each."""
    return [record["fallback"] for record in records(run) if record["fallback"] is not None]


def committed_steps(run):
    """The steps of a run's complete checkpoints, in order."""
    return sorted(int(path.parent.name.split("-")[1].split(".")[0])
                  for path in (run / "checkpoints").glob("step-*/manifest.json"))


def read_safetensors(path):
    """{name: array of numbers} of a file of float32 and float64 tensors."""
    return {name: array.array({"F32": "f", "F64": "d"}[dtype], content)
            for name, (dtype, _, content) in read_tensors(path)[0].items()}


def checkpoint_tensors(run, step):
    """{name: values} of a checkpoint, its owner slices joined: the same for any number of ranks."""
    directory = run / "checkpoints" / f"step-{step}"
    parts = {}
    manifest = json.loads((directory / "manifest.json").read_text())
    files = [(directory, file) for file in manifest["files"]]
    files += [(directory.parent / "shared", file) for file in manifest.get("shared", [])]
    for folder, file in files:
        for name, values in read_safetensors(folder / file["name"]).items():
            begin = file["intervals"][int(name.split(".")[1])][0]
            parts.setdefault(name, []).append((begin, values))
    joined = {}
    for name, slices in parts.items():
        joined[name] = array.array(slices[0][1].typecode)
        for _, values in sorted(slices, key=lambda slice_: slice_[0]):
            joined[name].extend(values)
    return joined


# Runs that several tests of this process compare with: what they were made of, and where they are kept.
KEPT = {}
COMMANDS = Commands(os.path.abspath(SLUICE))
KEPT_FOLDER = tempfile.TemporaryDirectory(prefix="sluice-kept-")


class Outcome:
    """How a program ended: its exit status and what it wrote."""

    def __init__(self, status, stdout, stderr, seconds):
        self.status, self.stdout, self.stderr, self.seconds = status, stdout, stderr, seconds

    def __str__(self):
        return f"exit status {self.status} after {self.seconds:.1f} s\n{self.stderr[-4000:]}"


class TestCase(unittest.TestCase):
    """A test in a temporary directory with a corpus at `corpus`, and ways to run the program in it."""

    # Runs go on when a rank is lost, as users' do; tests of what else ends them say no.
    elastic = True

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sluice-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        write_corpus(self.directory / "corpus", make_documents())

    def config(self, run, **changes):
        """Writes NAME.toml for the run directory `run`; returns the directory. Changes: section__key=value."""
        changes = {name.replace("__", ".", 1): value for name, value in changes.items()}
        settings = merged(base_settings(), {"log.dir": run, "elastic.enabled": self.elastic, **changes})
        (self.directory / f"{run}.toml").write_text(to_toml(settings))
        return self.directory / run

    def start(self, command, env=None, **options):
        """Starts a command in the test's directory; it is killed with the test."""
        process = subprocess.Popen(command, cwd=self.directory, env=env or environment(), text=True,
                                   **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        """Ends a process that a failed test left behind; a launcher's ranks end with it."""
        if process.poll() is None:
            process.kill()
        process.communicate()

    def finish(self, process, timeout_s=RUN_TIMEOUT_S):
        """Waits for a started process."""
        begin = time.monotonic()
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            self.fail(f"{process.args} did not end within {timeout_s} s:\n{stderr[-4000:]}")
        return Outcome(process.returncode, stdout, stderr, time.monotonic() - begin)

    @staticmethod
    def program():
        return os.path.abspath(SLUICE)

    def sluice(self, *arguments, expect=0):
        """What another command prints; where it is to fail, what it says."""
        result = COMMANDS.run(arguments, self.directory, environment(), RUN_TIMEOUT_S)
        self.assertEqual(result.returncode, expect, result.stderr)
        return result.stdout if expect == 0 else result.stderr

    @staticmethod
    def train_command(run, ranks=0, *arguments):
        """`sluice train` with RUN.toml; ranks 0: as one rank of whatever the environment says."""
        command = [os.path.abspath(SLUICE), "train", "--config", f"{run}.toml"]
        return command + (["--nproc", str(ranks)] if ranks else []) + list(arguments)

    def start_train(self, run, ranks, *arguments, env=None, **options):
        return self.start(self.train_command(run, ranks, *arguments), env, **options)

    def train(self, run, ranks, *arguments, expect=0, may_fall_back=False, **options):
        """Trains to the end and checks the exit status, and that every plan was the planner's."""
        if options:
            outcome = self.finish(self.start_train(run, ranks, *arguments, **options))
        else:
            begin = time.monotonic()
            done = COMMANDS.run(self.train_command(run, ranks, *arguments)[1:], self.directory, environment(), RUN_TIMEOUT_S)
            outcome = Outcome(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)
        self.assertEqual(outcome.status, expect, str(outcome))
        if expect == 0:
            self.assertNotIn("\\u000a", outcome.stderr, "several lines were logged as one")
        if expect == 0 and not may_fall_back and (self.directory / run / "metrics.jsonl").exists():
            self.assertEqual(fallbacks(self.directory / run), [], f"{run} fell back")
        return outcome

    def kept(self, make, **made_of):
        """The directory of a run that `make(**made_of)` trains, which no test may change: trained once for all tests of this
        process that ask for the same."""
        key = (make.__qualname__, json.dumps(made_of, sort_keys=True))
        if key not in KEPT:
            KEPT[key] = pathlib.Path(KEPT_FOLDER.name, str(len(KEPT)))
            shutil.move(make(**made_of), KEPT[key])
        return KEPT[key]

    def wait_for_step(self, run, step, process):
        """Returns when metrics.jsonl holds `step`."""
        lines = LineCount(run / "metrics.jsonl")
        self.assertTrue(wait_until(lambda: process.poll() is not None or lines.now() > step, RUN_TIMEOUT_S),
                        f"{run} never reached step {step}")
        if process.poll() is not None:
            self.fail(f"the run ended before step {step}: {self.finish(process)}")

    def assert_same_checkpoint(self, run, other, step):
        """Bitwise equal tensors."""
        tensors, expected = checkpoint_tensors(run, step), checkpoint_tensors(other, step)
        self.assertEqual(tensors.keys(), expected.keys())
        for name, values in tensors.items():
            self.assertEqual(values.tobytes(), expected[name].tobytes(), f"{name} of step {step}")

    def assert_close_checkpoint(self, run, other, step, tolerance, states=("master", "exp_avg", "exp_avg_sq")):
        """Each tensor within `tolerance` of its largest element."""
        tensors, expected = checkpoint_tensors(run, step), checkpoint_tensors(other, step)
        self.assertEqual(tensors.keys(), expected.keys())
        for name, values in tensors.items():
            if name.rsplit(".", 1)[1] not in states:
                continue
            largest = max(map(abs, expected[name]))
            difference = max(abs(a - b) for a, b in zip(values, expected[name], strict=True))
            self.assertLessEqual(difference, tolerance * largest, f"{name} of step {step}")

    def assert_close_losses(self, run, other, loss_tolerance, norm_tolerance, goes_on=False):
        """Losses and gradient norms within relative tolerances, step by step; `goes_on`: as far as the other run goes."""
        found, expected = losses(run), losses(other)
        self.assertEqual(sorted(found)[:len(expected) if goes_on else None], sorted(expected))
        for step, (loss, norm) in expected.items():
            self.assertLessEqual(abs(found[step][0] - loss), loss_tolerance * abs(loss), f"loss of step {step}")
            self.assertLessEqual(abs(found[step][1] - norm), norm_tolerance * abs(norm), f"norm of step {step}")


def terminate(process_id):
    os.kill(process_id, signal.SIGTERM)
