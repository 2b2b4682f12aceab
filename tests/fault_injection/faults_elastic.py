"""Elastic runs, in which what is lost costs steps and not the run: they end with 0 by themselves, and on as many ranks
as before bit for bit as if nothing had happened."""

import re
import signal

from fault import ALL, STEP, Group
from harness import wait_until
from job import RANKS, STUCK_S
from phase import Missed

FAULTS = Group("elastic")
GOES_ON = "goes on from memory and ends 0"


def elastic_to_phase(trial):
    trial.configure(elastic__enabled=True, elastic__snapshot_every=1)
    return trial.train_to_phase()


def goes_on(trial, job):
    """The run ends by itself, whatever was struck. Missed where nothing was: the run was through, so no membership followed."""
    endings = trial.ends(job, 0)
    trial.complete()
    if not re.search(r"membership \d+ of .* goes on ", endings["launcher"].output):
        raise Missed


def strike_workers(job, number, *ranks):
    """Sends a signal to these ranks' workers, once one has begun. Missed if the run ends before."""
    wait_until(lambda: any([job.signal_worker(rank, number) for rank in ranks]) or job.ended(), STUCK_S, 0.01)
    if job.ended():
        raise Missed


def kill_worker(victim):
    def strike(trial):
        job = elastic_to_phase(trial)
        strike_workers(job, signal.SIGKILL, victim)
        goes_on(trial, job)
    return strike


for rank in range(RANKS):
    # At the end only the report is left to write.
    phases = (ALL[:-1], ("join", *STEP, "save", "behind"), ("start", "step", "update", "evaluate"))[rank]
    FAULTS.add(f"kill -9 of rank {rank}'s worker", phases, GOES_ON, kill_worker(rank))


@FAULTS("kill -9 of two workers at once", ("join", *STEP, "evaluate", "save", "behind"), GOES_ON)
def kill_two_workers(trial):
    job = elastic_to_phase(trial)
    strike_workers(job, signal.SIGKILL, *trial.chance.sample(range(RANKS), 2))
    goes_on(trial, job)


@FAULTS("kill -9 of all workers at once", ("join", "step", "save"), GOES_ON)
def kill_all_workers(trial):
    job = elastic_to_phase(trial)
    strike_workers(job, signal.SIGKILL, *range(RANKS))
    goes_on(trial, job)


@FAULTS("kill -9 of a worker, again and again", ("step", "push", "save"), GOES_ON)
def kill_again_and_again(trial):
    job = elastic_to_phase(trial)
    strike_workers(job, signal.SIGKILL, trial.chance.randrange(RANKS))
    for _ in range(2):
        trial.pause(1.0)
        job.signal_worker(trial.chance.randrange(RANKS), signal.SIGKILL)
    goes_on(trial, job)


@FAULTS("SIGTERM to everything as a worker is started anew", ("step", "update", "save"), "saves what was done and ends 0")
def told_behind_a_loss(trial):
    """In the first thousandths of a second of the next worker's life, or a little before or behind."""
    job = elastic_to_phase(trial)
    strike_workers(job, signal.SIGKILL, trial.chance.randrange(RANKS))
    trial.pause(trial.chance.random() * 0.2)
    job.signal_group(signal.SIGTERM)
    trial.ends(job, 0)
    trial.saved_all()


@FAULTS("SIGTERM to everything as all ranks are started anew", ("step", "save"),
        "saves what is in memory and ends 0, or leaves it there and ends 1; the next attempt goes on behind it")
def told_before_the_meeting(trial):
    """From the first moment of the next attempt on, whose ranks find their dead supervisors' memory."""
    trial.configure(elastic__enabled=True, elastic__snapshot_every=1)
    job = trial.job()
    job.start_by_hand("run", "--resume", "auto")
    trial.reach(job)
    if job.ended():
        raise Missed
    job.signal_group(signal.SIGKILL)
    job.wait()
    job.leave_nothing()
    again = trial.job()
    again.start_by_hand("run", "--resume", "auto")
    trial.pause(trial.chance.random() * 0.5)
    again.signal_group(signal.SIGTERM)
    endings = trial.ends(again, 0, 1, -signal.SIGTERM)  # the last one before the program runs
    if all(ending.status == 0 for ending in endings.values()):
        trial.saved_all()
    last = trial.job()
    last.start_by_hand("run", "--resume", "auto")
    trial.ends(last, 0)
    trial.complete()


@FAULTS("SIGSTOP of a worker", ("step", "save"), "named lost, replaced, ends 0")
def freeze_worker(trial):
    job = elastic_to_phase(trial)
    strike_workers(job, signal.SIGSTOP, trial.chance.randrange(RANKS))
    goes_on(trial, job)
