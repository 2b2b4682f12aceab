"""Two that use one run directory at once, and readers of a run that is under way."""

import os
import re
import shutil
import signal
import subprocess
import time

from fault import Group
from harness import wait_until
from job import PROGRAM, STUCK_S, Broken, Job
from phase import Missed, metrics_lines
from fault_injection import Skipped

FAULTS = Group("sharing")
ONE_WINS = "the second ends 1 and names the first, which goes on"
# Process numbers there mean nothing here: to the lock it is another machine, and the network file system a folder, or
# that folder by another way ($TRIAL_ELSEWHERE).
ELSEWHERE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def second_run(trial):
    job = trial.job()
    job.start_locally("run", "--resume", "auto")
    return job


def second_run_elsewhere(trial):
    if not shutil.which(ELSEWHERE[0]) or subprocess.run([*ELSEWHERE, "true"], capture_output=True).returncode != 0:
        raise Skipped("no process number spaces")
    job = trial.job()
    job.start_locally("run", "--resume", "auto", prefix=ELSEWHERE, cwd=trial.seen_elsewhere())
    return job


def refused(job):
    """The job ends since another one holds the directory. Missed if it came when the other was through."""
    ending = job.wait()["launcher"]
    if ending.status == 0 and "done already" in ending.output:
        raise Missed
    if ending.status not in (1, 2) or not re.search(r"process \d+", ending.output):
        raise Broken(f"the second run was not refused: {ending}")


def two_runs(start_second):
    def strike(trial):
        trial.configure(train__steps=100_000)  # far from its end, however long the second takes to start
        first = trial.train_to_phase()
        refused(start_second(trial))
        goes_on(trial, first)
    return strike


FAULTS.add("a second run in the same directory", ("join", "step", "save"), ONE_WINS, two_runs(second_run))
FAULTS.add("a second run from another machine", ("step", "save"), ONE_WINS, two_runs(second_run_elsewhere))


def goes_on(trial, run):
    """It trains, and saves when it is told to end."""
    seen = metrics_lines(trial.run)
    if not wait_until(lambda: metrics_lines(trial.run) > seen or run.ended(), STUCK_S):
        raise Broken("the run that has the directory does not go on")
    run.signal_group(signal.SIGTERM)
    trial.ends(run, 0)
    trial.saved_all()
    trial.finished = True


def two_at_once(start_second):
    def strike(trial):
        trial.configure(train__steps=100_000)
        jobs = [trial.start(), start_second(trial)]
        if not wait_until(lambda: any(job.ended() for job in jobs), STUCK_S):
            raise Broken("both go on")
        jobs.sort(key=Job.ended)
        refused(jobs[1])
        goes_on(trial, jobs[0])
    return strike


ONE_OF_TWO = "one goes on, the other ends 1 and names it"
FAULTS.add("two runs begin at the same moment", ("start",), ONE_OF_TWO, two_at_once(second_run))
FAULTS.add("two runs begin at the same moment on two machines", ("start",), ONE_OF_TWO,
           two_at_once(second_run_elsewhere))


@FAULTS("a run takes over from one that was killed", ("join", "step", "save"), "goes on at once")
def take_over(trial):
    job = trial.train_to_phase()
    job.signal_group(signal.SIGKILL)
    trial.resume()


@FAULTS("another machine takes over from a run that was killed", ("join", "step", "save"), "goes on after 30 s")
def take_over_elsewhere(trial):
    job = trial.train_to_phase()
    job.signal_group(signal.SIGKILL)
    trial.ends(second_run_elsewhere(trial), 0)
    trial.complete()


def frozen_run(trial):
    """A run that has reached its phase and stands still, and how to wake it."""
    job = trial.train_to_phase()
    frozen = [job.launcher.pid, *job.ranks().values()]
    for process in frozen:
        os.kill(process, signal.SIGSTOP)

    def wake():
        for process in frozen:
            os.kill(process, signal.SIGCONT)
    return job, wake


@FAULTS("a second run while the first is frozen", ("step",), ONE_WINS)
def second_while_frozen(trial):
    first, wake = frozen_run(trial)
    refused(second_run(trial))
    wake()
    trial.ends(first, 0)
    trial.complete()


@FAULTS("another machine takes over from a frozen run, which wakes", ("step", "save"),
        "the woken one ends 1 and changes nothing")
def take_over_from_frozen(trial):
    first, wake = frozen_run(trial)
    second = second_run_elsewhere(trial)
    second.wait()
    wake()
    trial.ends(first, 1)
    trial.ends(second, 0)
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
