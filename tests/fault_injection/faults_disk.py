"""Disks: full ones, read-only ones, and folders that somebody takes away."""

import contextlib
import ctypes
import os
import shutil

import check
from fault import RUNNING, Group
from job import Broken
from phase import Missed
from fault_injection import Skipped

FAULTS = Group("disk")
MS_RDONLY, MS_REMOUNT, MS_BIND, MNT_DETACH = 1, 32, 4096, 2
LIBC = ctypes.CDLL(None, use_errno=True)


def mount_small(trial, folder, options):
    """A file system of its own for a folder, as long as the trial."""
    folder.mkdir(exist_ok=True)
    if LIBC.mount(b"none", os.fsencode(folder), b"tmpfs", 0, options.encode()) != 0:
        raise Skipped("mounting is not allowed here")
    trial.at_the_end(unmount, folder)


def unmount(folder):
    LIBC.umount2(os.fsencode(folder), MNT_DETACH)


def fill(trial):
    """Takes all the room that is left; the file that takes it."""
    filler = trial.run / "filler"
    with open(filler, "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1 << 8, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    return filler


@FAULTS("the disk is full", ("join", *RUNNING, "end"), "ends 1 and says so; at the end warns")
def disk_full(trial):
    mount_small(trial, trial.run, "size=64m")
    job = trial.start()
    trial.reach(job)
    filler = fill(trial)
    endings = trial.ends(job, 0, 1)
    if endings["launcher"].status == 1:
        trial.says(endings, "No space left on device|free space")
    elif trial.phase != "end":
        raise Missed
    filler.unlink()
    trial.resume()


@FAULTS("the disk is full, and stays so when the run is started again", ("save",), "ends 1 both times")
def disk_stays_full(trial):
    mount_small(trial, trial.run, "size=64m")
    job = trial.start()
    trial.reach(job)
    filler = fill(trial)
    for _ in range(2):
        trial.ends(job, 1, says="No space left on device|free space")
        job = trial.start()
    trial.ends(job, 1, says="No space left on device|free space")
    filler.unlink()
    trial.resume()


@FAULTS("no inodes are left", ("join", "save"), "ends 1 and says so")
def no_inodes(trial):
    mount_small(trial, trial.run, "size=64m,nr_inodes=200")
    job = trial.start()
    trial.reach(job)
    fillers = []
    try:
        for number in range(1000):
            filler = trial.run / f"filler{number}"
            filler.touch()
            fillers.append(filler)
    except OSError:
        pass
    trial.ends(job, 1, says="No space left on device")
    for filler in fillers:
        filler.unlink()
    trial.resume()


@FAULTS("files may not grow beyond 16 KiB", ("start",), "ends 1 and says so")
def file_limit(trial):
    job = trial.start(prefix=["prlimit", "--fsize=16384", "--"])
    trial.ends(job, 1, says="File too large|free space|file size")


@FAULTS("the run directory is read-only", ("start", "rest"), "ends 1 and says so")
def read_only(trial):
    if trial.phase == "rest":
        trial.take_stopped_run()
    else:
        trial.run.mkdir()
    source = os.fsencode(trial.run)
    if LIBC.mount(source, source, None, MS_BIND, None) != 0:
        raise Skipped("mounting is not allowed here")
    trial.at_the_end(unmount, trial.run)
    LIBC.mount(None, source, None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)
    trial.ends(trial.start(), 1, says="Read-only file system")
    LIBC.mount(None, source, None, MS_REMOUNT | MS_BIND, None)
    trial.resume()


@FAULTS("the run directory is removed", RUNNING, "goes on and writes it anew; begun anew")
def run_removed(trial):
    job = trial.train_to_phase()
    trial.committed = 0
    shutil.rmtree(trial.run, ignore_errors=True)
    trial.ends(job, 0, 1)
    shutil.rmtree(trial.run, ignore_errors=True)
    trial.committed = 0


@FAULTS("the checkpoints are removed", RUNNING, "ends by itself; goes on, or is begun anew")
def checkpoints_removed(trial):
    job = trial.train_to_phase()
    trial.committed = 0
    shutil.rmtree(trial.run / "checkpoints", ignore_errors=True)
    trial.ends(job, 0, 1)


def put_file_for_folder(place):
    """Also where the run makes the folder anew in between."""
    while not place.is_file():
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):
            place.touch(exist_ok=False)


@FAULTS("a file stands where checkpoints belong", ("start", "step"), "ends 1 or 2 and says so")
def file_for_folder(trial):
    place = trial.run / "checkpoints"
    job = trial.start()
    if trial.phase == "start":
        trial.run.mkdir(exist_ok=True)
    else:
        trial.reach(job)
    trial.committed = 0
    put_file_for_folder(place)
    trial.ends(job, 1, 2, says="checkpoints")
    place.unlink()


@FAULTS("a folder stands where a rank's log belongs", ("start",), "ends 1 and says so")
def folder_for_log(trial):
    place = trial.run / "rank-1.log"
    place.mkdir(parents=True)
    trial.ends(trial.start(), 1, 2, says=r"rank-1\.log")
    place.rmdir()


@FAULTS("a folder stands where the metrics belong", ("start", "rest"), "ends 1 or 2 and says so")
def folder_for_metrics(trial):
    place, aside = trial.run / "metrics.jsonl", trial.directory / "aside"
    if trial.phase == "rest":
        trial.take_stopped_run()
        place.rename(aside)
    place.mkdir(parents=True)
    trial.ends(trial.start(), 1, 2, says=r"metrics\.jsonl")
    place.rmdir()
    if aside.exists():
        aside.rename(place)


@FAULTS("the corpus is removed while it is read", ("step", "evaluate"), "goes on: it is mapped")
def corpus_removed(trial):
    job = trial.train_to_phase()
    for suffix in ("bin", "idx"):
        (trial.directory / f"corpus.{suffix}").rename(trial.directory / f"away.{suffix}")
    endings = trial.ends(job, 0)
    if check.newest(trial.run) != trial.undisturbed.steps:
        raise Broken(f"the run did not reach its end: {endings}")
    trial.complete()
