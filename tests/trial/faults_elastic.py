"""Elastic runs, in which what is lost costs steps and not the run: they end with 0 by themselves, and on as many ranks
as before bit for bit as if nothing had happened."""

import signal

from fault import ALL, STEP, Group
from job import RANKS

FAULTS = Group("elastic")
GOES_ON = "goes on from memory and ends 0"


def elastic_to_phase(trial):
    trial.configure(elastic__enabled=True, elastic__buddy_every=1)
    return trial.train_to_phase()


def goes_on(trial, job):
    """The run ends by itself, whatever was struck."""
    trial.ends(job, 0)
    trial.complete()


def kill_worker(victim):
    def strike(trial):
        job = elastic_to_phase(trial)
        job.signal_worker(victim, signal.SIGKILL)
        goes_on(trial, job)
    return strike


for rank in range(RANKS):
    # At the end only the report is left to write.
    phases = (ALL[:-1], ("join", *STEP, "save", "behind"), ("start", "step", "update", "evaluate"))[rank]
    FAULTS.add(f"kill -9 of rank {rank}'s worker", phases, GOES_ON, kill_worker(rank))


@FAULTS("kill -9 of two workers at once", ("join", *STEP, "evaluate", "save", "behind"), GOES_ON)
def kill_two_workers(trial):
    job = elastic_to_phase(trial)
    for rank in trial.chance.sample(range(RANKS), 2):
        job.signal_worker(rank, signal.SIGKILL)
    goes_on(trial, job)


@FAULTS("kill -9 of all workers at once", ("join", "step", "save"), GOES_ON)
def kill_all_workers(trial):
    job = elastic_to_phase(trial)
    for rank in range(RANKS):
        job.signal_worker(rank, signal.SIGKILL)
    goes_on(trial, job)


@FAULTS("kill -9 of a worker, again and again", ("step", "push", "save"), GOES_ON)
def kill_again_and_again(trial):
    job = elastic_to_phase(trial)
    for _ in range(3):
        job.signal_worker(trial.chance.randrange(RANKS), signal.SIGKILL)
        trial.pause(1.0)
    goes_on(trial, job)


@FAULTS("SIGSTOP of a worker", ("step", "save"), "named lost, replaced, ends 0")
def freeze_worker(trial):
    job = elastic_to_phase(trial)
    job.signal_worker(trial.chance.randrange(RANKS), signal.SIGSTOP)
    goes_on(trial, job)
