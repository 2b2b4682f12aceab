"""When a fault strikes: a phase of the run, found by what the program prints or writes, and a moment within it that
the seed draws. Phases of a step are aimed at by the measured timeline of the undisturbed run."""

import os
import signal
import time

from harness import wait_until
from job import STUCK_S, Broken

class Missed(Exception):
    """The run was past the phase before it could be struck."""


def metrics_lines(run):
    """How many whole lines metrics.jsonl has."""
    try:
        return (run / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def being_written(run):
    """Whether a checkpoint is begun and not committed."""
    try:
        names = os.listdir(run / "checkpoints")
    except OSError:
        return False
    return any(not (run / "checkpoints" / name / "manifest.json").exists()
               for name in names if name.startswith("step-"))


def holds_signals(process_id):
    """Whether a process has begun to hold SIGTERM back, which `sluice train` does before its libraries' own code runs."""
    try:
        with open(f"/proc/{process_id}/status") as status:
            words = dict(line.split(":", 1) for line in status if line.startswith(("SigBlk", "SigCgt")))
    except OSError:
        return False
    return any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in words.values())


class Moment:
    """Waits for phases of one job of a trial."""

    def __init__(self, trial, job, run):
        self.trial, self.job, self.run, self.chance = trial, job, run, trial.chance

    def until(self, condition):
        """Waits for a condition; Missed if the job ends before."""
        if not wait_until(lambda: condition() or self.job.ended(), STUCK_S, 0.001):
            raise Broken(f"the phase was never reached within {STUCK_S} s; {self.job.stacks()}")
        if self.job.ended() and not condition():
            raise Missed

    def pause(self, low_s, high_s):
        time.sleep(self.chance.uniform(low_s, high_s))

    def reach(self, phase):
        getattr(self, f"reach_{phase}")()

    def reach_start(self):
        """The processes have begun: libraries load, nothing is read yet. The kernel's and the loader's own time comes
        before: a program cannot answer for signals then (docs/operating.md)."""
        self.until(lambda: all(holds_signals(process.pid) for process in self.job.processes.values()))
        self.pause(0, 0.3)

    def reach_join(self):
        """The ranks look for each other."""
        ranks = self.trial.ranks
        self.until(lambda: all((self.run / f"rank-{rank}.log").exists() for rank in range(ranks)))
        self.pause(0, 0.05)

    def reach_calibrate(self):
        """Ranks measure the machine; the file with the result marks the end."""
        self.reach_join()
        self.pause(0.1, 0.8)
        if (self.run / "config.toml").exists():
            raise Missed

    def reach_step(self):
        step = self.some_step()
        self.pause(0, self.trial.undisturbed.seconds_of(step))

    def some_step(self, steps=None):
        """Waits until one of `steps` (all but the last) is under way; which."""
        begun = metrics_lines(self.run)
        last = self.trial.undisturbed.steps - 2
        ahead = [step for step in (steps or range(1, last + 1)) if step <= last and self.line_before(step) > begun]
        if not ahead:
            raise Missed
        step = self.chance.choice(ahead)
        self.until(lambda: metrics_lines(self.run) >= self.line_before(step))
        return step

    def line_before(self, step):
        """How many lines metrics.jsonl has when `step` begins."""
        return self.trial.undisturbed.lines_before(step)

    def reach_in_step(self, mark):
        undisturbed = self.trial.undisturbed
        step = self.some_step([step for step in range(1, undisturbed.steps) if undisturbed.intervals(step, mark)])
        begin_s, end_s = self.chance.choice(undisturbed.intervals(step, mark))
        self.pause(begin_s, end_s)

    def reach_pull(self):
        self.reach_in_step("^pull")

    def reach_ring(self):
        """A cell that several lanes share, for which they exchange keys and values."""
        self.reach_in_step(r" l\d+-\d+ ")

    def reach_push(self):
        self.reach_in_step("^push")

    def reach_update(self):
        self.reach_in_step("^update")

    def reach_evaluate(self):
        """The line of a step that an evaluation follows is there, the evaluation's is not."""
        undisturbed = self.trial.undisturbed
        begun = metrics_lines(self.run)
        ahead = [step for step in undisturbed.evaluated[:-1] if undisturbed.lines_before(step) >= begun]
        if not ahead:
            raise Missed
        step = self.chance.choice(ahead)
        line = undisturbed.lines_before(step) + 1
        self.until(lambda: metrics_lines(self.run) >= line)
        self.pause(0, undisturbed.seconds_of(step))

    def reach_save(self):
        """A checkpoint's folder is there, its manifest is not."""
        begun = metrics_lines(self.run)
        after = begun + self.chance.randrange(1, 5)
        self.until(lambda: metrics_lines(self.run) >= after and being_written(self.run))
        self.pause(0, 0.01)

    def reach_behind(self):
        """The same while steps go on: some steps pass between the two."""
        self.reach_save()
        self.pause(0, 0.1)

    def reach_end(self):
        """The last step is done: what is left is the last checkpoint, the report and leaving."""
        lines = self.trial.undisturbed.lines_before(self.trial.undisturbed.steps)
        self.until(lambda: metrics_lines(self.run) >= lines - 1)
        self.pause(0, 0.1)
