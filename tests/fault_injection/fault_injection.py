"""One trial: a fault strikes a run of real processes at a phase, as a seed draws it, and what must hold is checked."""

import os
import pathlib
import random
import re
import shutil
import signal
import tempfile
import time

import check
from harness import base_settings, committed_steps, make_documents, merged, to_toml, wait_until, write_corpus
from job import LEFTOVER_S, RANKS, STUCK_S, Broken, Job, end_all, processes_of
from phase import Missed, Moment, metrics_lines

STEPS = 10
SAVED_EVERY = 2
# Tokens of the longest document: so many that the lanes of <1,1,3> share some in every step.
LONGEST = 512
STRATEGIES = ["<2,1,1> + <1,1,1>", "<1,1,3>", "<1,2,1> + <1,1,1>", "3x<1,1,1>"]


class Skipped(Exception):
    """This machine cannot try it; the text says why."""


def settings(**changes):
    """The configuration of all trials' runs: some seconds, every phase in them."""
    common = {"model.hidden": 64, "model.ffn_hidden": 128, "data.context_length": LONGEST, "data.tokens_per_step": 1024,
              "data.validation_fraction": 0.1, "train.steps": STEPS, "train.eval_every": 3,
              "parallel.strategies": STRATEGIES, "checkpoint.every": SAVED_EVERY, "log.tensorboard": True,
              "train.join_timeout_s": 60, "elastic.enabled": False}
    return merged(base_settings(), common | changes)


class Testbed:
    """What the trials of one call share: a corpus, an undisturbed run, a run that stopped in its middle."""

    def __init__(self, folder):
        self.folder = folder
        self.ranks = RANKS
        (folder / "tmp").mkdir()
        write_corpus(folder / "corpus", make_documents(longest=LONGEST))
        self.undisturbed = self.run_undisturbed("whole")
        self._stopped = None

    def run_undisturbed(self, name, folder=None, **changes):
        """Trains to the end without any fault; what came out."""
        folder = folder or self.folder
        traced = {"log.dir": name, "log.trace_steps": list(range(STEPS))}
        (folder / f"{name}.toml").write_text(to_toml(settings(**{**traced, **changes})))
        token = f"undisturbed-{os.getpid()}"
        job = Job(folder, token)
        job.start_locally(name)
        try:
            ending = job.wait()["launcher"]
        finally:
            end_all(token)
        if ending.status != 0:
            raise Broken(f"the undisturbed run failed: {ending.output[-2000:]}")
        return check.Undisturbed(folder / name)

    def stopped(self):
        """The folder of a run whose processes were all killed some steps behind its second checkpoint."""
        if self._stopped:
            return self._stopped
        folder = self.folder / "stopped"
        folder.mkdir()
        (folder / "tmp").mkdir()
        copy_corpus(self.folder, folder)
        (folder / "run.toml").write_text(to_toml(settings()))
        token = f"stopped-{os.getpid()}"
        job = Job(folder, token)
        job.start_locally("run", "--resume", "auto")
        lines = self.undisturbed.lines_before(2 * SAVED_EVERY + 1)
        wait_until(lambda: metrics_lines(folder / "run") >= lines or not job.running(), STUCK_S, 0.001)
        job.signal_group(signal.SIGKILL)
        job.wait()
        wait_until(lambda: not processes_of(token), STUCK_S)
        if committed_steps(folder / "run")[-2:] != [SAVED_EVERY, 2 * SAVED_EVERY]:
            raise Broken(f"checkpoints of {committed_steps(folder / 'run')} where 2 and 4 are wanted: "
                         "the machine is too slow or too fast for these trials")
        self._stopped = folder
        return folder


def copy_corpus(source, target):
    for suffix in ("bin", "idx"):
        shutil.copyfile(source / f"corpus.{suffix}", target / f"corpus.{suffix}")


class Trial:
    """What a fault has to work with. Faults call what follows and raise Broken; what they leave undone (resuming,
    comparing, looking for what is left over) is done when they return."""

    def __init__(self, testbed, phase_name, seed, folder):
        self.testbed, self.phase, self.seed = testbed, phase_name, seed
        self.ranks, self.undisturbed = testbed.ranks, testbed.undisturbed
        self.chance = random.Random(seed)
        self.token = f"{os.getpid()}-{seed}-{time.monotonic_ns()}"
        self.directory = folder
        self.run = folder / "run"
        self.jobs, self.cleanups = [], []
        self.finished = False
        self.committed = 0
        (folder / "tmp").mkdir()
        copy_corpus(testbed.folder, folder)
        self.changes = {}
        self.configure()

    # What a fault does with runs.

    def configure(self, **changes):
        """Writes run.toml; changes: section__key=value, kept for later calls."""
        self.changes |= {name.replace("__", ".", 1): value for name, value in changes.items()}
        (self.directory / "run.toml").write_text(to_toml(settings(**self.changes)))

    def start(self, *arguments, **options):
        """A launcher and its ranks, beginning or continuing the run."""
        if self.phase == "calibrate":
            self.configure(parallel__calibration="auto")
        if self.phase == "behind":
            self.configure(checkpoint__async=True)
        job = self.job()
        job.start_locally("run", "--resume", "auto", *arguments, **options)
        return job

    def job(self):
        self.jobs.append(Job(self.directory, self.token))
        return self.jobs[-1]

    def reach(self, job, phase_name=None):
        """Waits for the trial's phase, or another one, of a job."""
        Moment(self, job, self.run).reach(phase_name or self.phase)
        job.note_ports()
        self.committed = max(self.committed, check.newest(self.run))

    def strike_rank(self, job, rank, number):
        """Sends a signal to a rank. Missed if the run was through: on a busy machine it may be, once its phase is seen."""
        if not job.signal_rank(rank, number):
            raise Missed

    def pause(self, seconds):
        """Lets a random part of so many seconds pass."""
        time.sleep(self.chance.uniform(0, seconds))

    def train_to_phase(self, **options):
        job = self.start(**options)
        self.reach(job)
        return job

    def take_stopped_run(self):
        """Puts a run here that was killed in its middle."""
        shutil.copytree(self.testbed.stopped() / "run", self.run)
        self.committed = check.newest(self.run)

    def seen_elsewhere(self):
        """The trial's folder as another machine sees it: $TRIAL_ELSEWHERE is $TMPDIR there."""
        root = pathlib.Path(tempfile.gettempdir())
        return os.environ.get("TRIAL_ELSEWHERE", root) / self.directory.relative_to(root)

    def at_the_end(self, action, *arguments):
        """Has an action done when the trial is over, however it ends."""
        self.cleanups.append((action, arguments))

    def ends(self, job, *statuses, says=None):
        """Waits for a job; each of its processes must end with one of the statuses, and nothing may be left. Returns
        their endings by name."""
        endings = job.wait()
        for ending in endings.values():
            if ending.status not in statuses:
                raise Broken(f"{ending}; wanted {' or '.join(map(str, statuses))}")
        self.says(endings, says)
        job.leave_nothing()
        self.nothing_lost()
        return endings

    def job_ends(self, *statuses, says=None):
        """Starts the run and waits for it."""
        return self.ends(self.start(), *statuses, says=says)

    @staticmethod
    def says(endings, pattern):
        """One of the endings' outputs must match a pattern, if there is one."""
        if pattern and not any(re.search(pattern, ending.output) for ending in endings.values()):
            raise Broken(f"nobody says {pattern!r}: {'; '.join(map(str, endings.values()))}")

    @staticmethod
    def never_says(endings, *texts):
        for ending in endings.values():
            for text in texts:
                if text in ending.output:
                    raise Broken(f"{ending.name} says {text!r}")

    def nothing_lost(self):
        now = check.newest(self.run)
        if now < self.committed:
            raise Broken(f"the checkpoint after {self.committed} steps is gone, the newest is {now}")
        self.committed = now

    def saved_all(self):
        """The newest checkpoint is of the last step that was reported."""
        lines = check.lines_of(self.run) if (self.run / "metrics.jsonl").exists() else []
        last = max((line["step"] + 1 for line in lines), default=0)
        if check.newest(self.run) != last:
            raise Broken(f"stopped after {last} steps, saved {check.newest(self.run)}")

    def resume(self, says=None):
        """Continues the run to its end: no step that was saved is repeated, and all is as if nothing had happened."""
        saved = check.newest(self.run)
        job = self.job()
        job.start_locally("run", "--resume", "auto")
        ending = self.ends(job, 0, says=says)["launcher"]
        first = re.search(r"step (\d+) \(", ending.output)
        if first and int(first.group(1)) != saved:  # steps count from 0
            raise Broken(f"continued with step {first.group(1)} of the checkpoint after {saved}")
        self.complete()
        return ending

    def complete(self):
        """The run is through: compares it with the undisturbed one."""
        undisturbed = self.undisturbed
        if self.changes.get("parallel.calibration") == "auto":
            link = {"parallel.calibration": str(self.run / "calibration.json")}
            undisturbed = self.testbed.run_undisturbed("twin", self.directory, **link)
        undisturbed.compare(self.run)
        check.files_left(self.run)
        self.finished = True

    def checks_itself(self):
        """The fault has a run of its own and compares it."""
        self.finished = True

    # What a trial is.

    def execute(self, fault):
        """Runs the fault and all checks."""
        try:
            fault.strike(self)
            if not self.finished:
                self.resume()
            self.nothing_left()
        finally:
            end_all(self.token)
            for action, arguments in reversed(self.cleanups):
                action(*arguments)

    def nothing_left(self):
        left = [str(path.relative_to(self.directory)) for path in (self.directory / "tmp").rglob("*")]
        if left:
            raise Broken(f"left over in TMPDIR: {', '.join(left)}")
        ports = set().union(*(job.ports for job in self.jobs))
        if not wait_until(lambda: not ports & listening_now(), LEFTOVER_S, 0.05):
            raise Broken(f"ports still open: {', '.join(map(str, sorted(ports & listening_now())))}")


def listening_now():
    """All ports on which somebody listens here."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                found.add(int(fields[1].rsplit(":", 1)[1], 16))
    return found
