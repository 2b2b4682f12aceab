"""Two that use one run directory at once, and readers of a run that is under way."""

import os
import re
import signal
import time

from fault import Group
from harness import wait_until
from job import PROGRAM, STUCK_S, Broken
from phase import Missed, metrics_lines

FAULTS = Group("sharing")
ONE_WINS = "the second ends 1 and names the first, which goes on"


def second_run(trial):
    job = trial.job()
    job.start_locally("run", "--resume", "auto")
    return job


def refused(job):
    """The job ends since another one holds the directory. Missed if it came when the other was through."""
    ending = job.wait()["launcher"]
    if ending.status == 0 and "done already" in ending.output:
        raise Missed
    if ending.status not in (1, 2) or not re.search(r"process \d+", ending.output):
        raise Broken(f"the second run was not refused: {ending}")


@FAULTS("a second run in the same directory", ("join", "step", "save"), ONE_WINS)
def two_runs(trial):
    trial.configure(train__steps=100_000)  # far from its end, however long the second takes to start
    first = trial.train_to_phase()
    refused(second_run(trial))
    seen = metrics_lines(trial.run)
    if not wait_until(lambda: metrics_lines(trial.run) > seen or first.ended(), STUCK_S):
        raise Broken("the first run does not go on")
    first.launcher.send_signal(signal.SIGTERM)
    trial.ends(first, 0)
    trial.saved_all()
    trial.finished = True


@FAULTS("two runs begin at the same moment", ("start",), "one goes on, the other ends 1 and names it")
def two_at_once(trial):
    jobs = [trial.start(), second_run(trial)]
    jobs.sort(key=lambda job: job.wait()["launcher"].status)
    refused(jobs[1])
    trial.ends(jobs[0], 0)
    trial.complete()


@FAULTS("a run takes over from one that was killed", ("join", "step", "save"), "goes on at once")
def take_over(trial):
    job = trial.train_to_phase()
    job.signal_group(signal.SIGKILL)
    trial.resume()


@FAULTS("a second run while the first is frozen", ("step",), ONE_WINS)
def second_while_frozen(trial):
    first = trial.train_to_phase()
    frozen = [first.launcher.pid, *first.ranks().values()]
    for process in frozen:
        os.kill(process, signal.SIGSTOP)
    refused(second_run(trial))
    for process in frozen:
        os.kill(process, signal.SIGCONT)
    trial.ends(first, 0)
    trial.complete()


def read_by(name, command, phases=("step", "save")):
    """Another command reads the run while it trains."""
    def strike(trial):
        first = trial.train_to_phase()
        reader = trial.job()
        while not metrics_lines(trial.run) and first.running():
            time.sleep(0.001)
        reader.start("reader", [PROGRAM, *command])
        reader.wait()
        ending = reader.endings()["reader"]
        if ending.status not in (0, 2):  # 2: what it wants is not there yet
            raise Broken(str(ending))
        trial.ends(first, 0)
        trial.complete()
    FAULTS.add(f"{name} of a run that goes on", phases, "the run is not disturbed", strike)


read_by("report", ["report", "run"])
read_by("inspect", ["inspect", "run/metrics.jsonl"])
read_by("export", ["export", "run", "--out", "exported"])
read_by("a dry run", ["train", "--config", "run.toml", "--nproc", "3", "--dry-run"])
