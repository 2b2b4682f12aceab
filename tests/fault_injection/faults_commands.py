"""Other commands that are killed, told to stop, or have no room: what they were to write is whole or absent, nothing
else is left, and the same command then writes what it writes undisturbed."""

import os
import random
import shutil
import signal
import subprocess
import time

from fault import Group
from faults_disk import mount_small, unmount
from job import PROGRAM, Broken
from phase import Missed

FAULTS = Group("commands")


def write_texts(trial):
    chance = random.Random(1)
    words = ["".join(chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(chance.randrange(2, 9)))
             for _ in range(3000)]
    folder = trial.directory / "texts"
    folder.mkdir()
    for number in range(40):
        text = "\n\n".join(" ".join(chance.choices(words, k=120)) for _ in range(60))
        (folder / f"{number}.txt").write_text(text)


def trained(trial):
    trial.take_stopped_run()


# name: (what makes its inputs, the command); all write into the folder out/made
COMMANDS = {
    "corpus build": (write_texts, ["corpus", "build", "texts", "--out", "out/made", "--train-tokenizer", "300",
                                   "--delimiter", "\\n\\n"]),
    "export": (trained, ["export", "run", "--out", "out/made"]),
    "report": (trained, ["report", "run", "--out", "out/made/report.html"]),
}


def contents(folder):
    """{name: bytes} of a folder's files."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def prepare(trial, name):
    """Sets up a command; (its words, what it writes undisturbed, how long that takes)."""
    make, words = COMMANDS[name]
    make(trial)
    make_folder(trial)
    begin = time.monotonic()
    run_once(trial, words, 0)
    seconds = time.monotonic() - begin
    expected = contents(trial.directory / "out")
    shutil.rmtree(trial.directory / "out")
    make_folder(trial)
    return words, expected, seconds


def make_folder(trial):
    """Where commands write; those that make a folder of their own find it empty, as users' often is."""
    (trial.directory / "out" / "made").mkdir(parents=True)


def run_once(trial, words, *statuses, says=None):
    job = trial.job()
    job.start("command", [PROGRAM, *words])
    trial.ends(job, *statuses, says=says)


def whole_again(trial, words, expected):
    """The same command, undisturbed, writes what it always writes and nothing else is there."""
    run_once(trial, words, 0)
    found = contents(trial.directory / "out")
    if found != expected:
        differing = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise Broken(f"differs from an undisturbed {words[0]}: {', '.join(differing)}")
    trial.finished = True


def struck(name, number, wanted, statuses):
    def strike(trial):
        words, expected, seconds = prepare(trial, name)
        job = trial.job()
        job.start("command", [PROGRAM, *words])
        time.sleep(trial.chance.uniform(0, seconds))
        job.processes["command"].send_signal(number)
        trial.ends(job, *statuses)
        if contents(trial.directory / "out") == expected:
            raise Missed  # it was through, and an export takes no folder that holds a model
        whole_again(trial, words, expected)
    FAULTS.add(f"{number.name} of {name}", ("run",), wanted, strike)


for command in COMMANDS:
    struck(command, signal.SIGKILL, "run again it leaves what it leaves undisturbed", (0, -signal.SIGKILL))
    struck(command, signal.SIGTERM, "run again it leaves what it leaves undisturbed", (0, 1, -signal.SIGTERM))


def full(name):
    def strike(trial):
        words, expected, _ = prepare(trial, name)
        out = trial.directory / "out"
        mount_small(trial, out, "size=8k")
        (out / "made").mkdir()
        run_once(trial, words, 1, says="No space left on device|free space")
        left = contents(out)
        unmount(out)
        if left:
            raise Broken(f"left over: {', '.join(left)}")
        whole_again(trial, words, expected)
    FAULTS.add(f"a full disk under {name}", ("run",), "ends 1, leaves nothing", strike)


for command in COMMANDS:
    full(command)


@FAULTS("two corpus builds into one folder", ("run",), "both whole, or one refused")
def two_builds(trial):
    words, expected, _ = prepare(trial, "corpus build")
    jobs = [trial.job() for _ in range(2)]
    for job in jobs:
        job.start("command", [PROGRAM, *words])
    statuses = [job.wait()["command"].status for job in jobs]
    if 0 not in statuses or not set(statuses) <= {0, 1, 2}:
        raise Broken(f"they ended with {statuses}")
    found = contents(trial.directory / "out")
    if found != expected:
        raise Broken(f"the folder holds {', '.join(sorted(found))}, or other bytes than undisturbed")
    trial.finished = True


def unread(name, words):
    """Output that nobody reads to its end, as with `| head -1`."""
    def strike(trial):
        trial.take_stopped_run()
        job = trial.job()
        reader, writer = os.pipe()
        os.close(reader)
        job.start("command", [PROGRAM, *words], stdout=writer, stderr=subprocess.DEVNULL)
        os.close(writer)
        trial.ends(job, 0, 1, -signal.SIGPIPE)
        trial.finished = True
    FAULTS.add(f"nobody reads the output of {name}", ("run",), "ends quietly", strike)


unread("inspect", ["inspect", "run/checkpoints/step-4/manifest.json"])
unread("lengths", ["lengths", "corpus"])
unread("plan", ["plan", "--config", "run.toml", "--step", "3"])


def no_room(name, words):
    """Output onto a full disk."""
    def strike(trial):
        trial.take_stopped_run()
        job = trial.job()
        with open("/dev/full", "wb") as full_device:
            job.start("command", [PROGRAM, *words], stdout=full_device)
        trial.ends(job, 1)
        trial.finished = True
    FAULTS.add(f"{name} writes onto a full disk", ("run",), "ends 1: the result is not there", strike)


no_room("inspect", ["inspect", "run/checkpoints/step-4/manifest.json"])
no_room("lengths", ["lengths", "corpus"])
no_room("plan", ["plan", "--config", "run.toml", "--step", "3", "--json"])
