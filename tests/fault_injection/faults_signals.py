"""Signals: ranks, launchers and whole groups that are killed, told to stop, frozen, or crash."""

import contextlib
import fcntl
import os
import signal
import subprocess
import time

from fault import ALL, RUNNING, STEP, Group
from harness import WAIT_ALL, alive, free_port, stop_thread, wait_until
from job import PROGRAM, RANKS, STUCK_S, Broken
from phase import Missed, metrics_lines
from fault_injection import Skipped

FAULTS = Group("signals")
KILLED = "ends 1 and names the rank"
SAVED = "saves and ends 0; before the first step ends 1"
# How long a frozen rank is tolerated by the launcher's and the other ranks' watch: less than its silence.
FROZEN_S = 2.0
# How long a rank may get nowhere where one is made to: on a busy machine nothing else may take so long.
STALL_S = 10


def kill_rank(victim):
    def strike(trial):
        job = trial.train_to_phase()
        struck = job.signal_rank(victim, signal.SIGKILL)
        late = trial.phase == "end" or not struck
        trial.ends(job, *((0, 1) if late else (1,)), says=None if late else f"rank {victim} was killed by signal 9")
    return strike


for rank in range(RANKS):
    phases = (ALL, ("join", *STEP[:4], "save", "behind"), ("start", "step", "update", "save"))[rank]
    FAULTS.add(f"kill -9 of rank {rank}", phases, KILLED, kill_rank(rank))


@FAULTS("kill -9 of two ranks at once", ("join", "step", "save"), KILLED)
def kill_two(trial):
    job = trial.train_to_phase()
    for rank in trial.chance.sample(range(RANKS), 2):
        job.signal_rank(rank, signal.SIGKILL)
    trial.ends(job, 1, says=r"rank \d was killed by signal 9")


@FAULTS("kill -9 of the launcher", ("start", "join", "step", "evaluate", "save", "end"), "all ranks end with it")
def kill_launcher(trial):
    job = trial.train_to_phase()
    job.launcher.kill()
    trial.ends(job, -signal.SIGKILL, 0)


@FAULTS("kill -9 of everything at once", ("start", "join", *STEP, "evaluate", "save", "behind", "end"),
        "as a loss of power")
def kill_everything(trial):
    job = trial.train_to_phase()
    job.signal_group(signal.SIGKILL)
    trial.ends(job, -signal.SIGKILL, 0)


@FAULTS("kill -9 twice: at this phase, and when it has resumed", RUNNING, KILLED)
def kill_twice(trial):
    for _ in range(2):
        job = trial.start()
        trial.reach(job)
        trial.strike_rank(job, trial.chance.randrange(RANKS), signal.SIGKILL)
        trial.ends(job, 1, says="was killed by signal 9")


@FAULTS("kill -9 of a rank without a launcher", ("join", "step", "push", "save"), "the others name it and end 1")
def kill_by_hand(trial):
    job = trial.job()
    job.start_by_hand("run", "--resume", "auto")
    trial.reach(job)
    victim = trial.chance.randrange(RANKS)
    trial.strike_rank(job, victim, signal.SIGKILL)
    pattern = None if trial.phase == "join" else rf"rank {victim} \(process \d+ on \S+\) was lost|with rank {victim}"
    endings = trial.ends(job, 1, -signal.SIGKILL, says=pattern)
    if [name for name, ending in endings.items() if ending.status < 0] != [f"rank{victim}"]:
        raise Broken("others than the victim died of a signal")


def stop(tell):
    """Tells a run to stop; it saves, unless it has not begun to train."""
    def strike(trial):
        job = trial.train_to_phase()
        begun = metrics_lines(trial.run) > 0
        tell(job, trial)
        trial.ends(job, *((0,) if begun else (0, 1)))
        if begun:
            trial.saved_all()
    return strike


def tell_launcher(job, _trial):
    job.launcher.send_signal(signal.SIGTERM)


def tell_rank(job, trial):
    job.signal_rank(trial.chance.randrange(RANKS), signal.SIGTERM)


def tell_group(job, _trial):
    job.signal_group(signal.SIGTERM)


def tell_group_twice(job, _trial):
    job.signal_group(signal.SIGTERM)
    time.sleep(0.05)
    job.signal_group(signal.SIGTERM)


def interrupt_group(job, _trial):
    job.signal_group(signal.SIGINT)


def hang_up(job, _trial):
    job.signal_group(signal.SIGHUP)


def tell_rank_of_time(job, trial):
    job.signal_rank(trial.chance.randrange(RANKS), signal.SIGUSR1)


FAULTS.add("SIGTERM to the launcher", ALL, SAVED, stop(tell_launcher))
FAULTS.add("SIGTERM to a rank", ("step", "evaluate", "save"), SAVED, stop(tell_rank))
FAULTS.add("SIGTERM to the group", ALL, SAVED, stop(tell_group))
FAULTS.add("SIGTERM to the group, twice", ("join", *RUNNING), SAVED, stop(tell_group_twice))
FAULTS.add("SIGINT to the group", ("start", *RUNNING), SAVED, stop(interrupt_group))


FAULTS.add("SIGHUP to the group: the terminal closes", ("start", *RUNNING), SAVED, stop(hang_up))
FAULTS.add("SIGUSR1 to a rank: time is nearly over", ("join", "step", "save"), SAVED, stop(tell_rank_of_time))


def freeze(who, number_of):
    """Stops processes for a while; nobody takes them for dead, and the run ends as if nothing had happened."""
    def strike(trial):
        job = trial.train_to_phase()
        frozen = number_of(job, trial)
        for process in frozen:
            os.kill(process, signal.SIGSTOP)
        time.sleep(FROZEN_S)
        for process in frozen:
            os.kill(process, signal.SIGCONT)
        trial.ends(job, 0)
        trial.complete()
    FAULTS.add(f"{who} frozen for {FROZEN_S:.0f} s", ("start", "join", "step", "push", "save"), "goes on", strike)


def some_rank(job, trial):
    process = job.rank(trial.chance.randrange(RANKS))
    return [process] if process else []


freeze("a rank", some_rank)
freeze("the launcher", lambda job, trial: [job.launcher.pid])
freeze("all", lambda job, trial: [job.launcher.pid, *job.ranks().values()])


@FAULTS("a rank frozen for good", ("join", "step", "save"), "ends 1 and names the rank")
def frozen_for_good(trial):
    job = trial.train_to_phase()
    victim = trial.chance.randrange(RANKS)
    trial.strike_rank(job, victim, signal.SIGSTOP)
    trial.ends(job, 1, says=None if trial.phase == "join" else rf"rank {victim}")


def stand_still(trial, thread_of):
    """Stops one thread of a rank while the others go on, and waits for that rank's end. Returns the job."""
    trial.configure(train__stall_s=STALL_S, train__join_timeout_s=4 * STALL_S)
    job = trial.train_to_phase()
    victim = job.rank(trial.chance.randrange(RANKS))
    if victim is None:
        raise Missed
    thread = thread_of(victim)
    if not stop_thread(thread):
        raise Skipped("the system lets nobody stop a thread")
    if not wait_until(lambda: not alive(victim), STUCK_S):
        raise Broken(f"nobody noticed within {STUCK_S} s; {job.stacks()}")
    with contextlib.suppress(ChildProcessError):
        os.waitpid(thread, WAIT_ALL)  # who stopped it is the first to hear of its end
    trial.configure(train__stall_s=60, train__join_timeout_s=60)
    return job


@FAULTS("a rank's main thread stands still", ALL[:-1], "ends 1 and names a rank and what it is at")
def main_thread_stands_still(trial):
    job = stand_still(trial, lambda process: process)
    early = trial.phase in ("start", "join")
    trial.ends(job, 1, says=r"no progress on rank \d: it |rank \d" if early else r"no progress on rank \d: it ")


@FAULTS("some thread of a rank stands still", ("join", "calibrate", *RUNNING), "goes on, or ends 1 and names a rank")
def some_thread_stands_still(trial):
    job = stand_still(trial, lambda process: int(trial.chance.choice(sorted(os.listdir(f"/proc/{process}/task")))))
    trial.ends(job, 0, 1)


def crash(number):
    def strike(trial):
        job = trial.train_to_phase()
        victim = trial.chance.randrange(RANKS)
        trial.strike_rank(job, victim, number)
        trial.ends(job, 1, says=rf"rank {victim} was killed by signal {int(number)}")
    FAULTS.add(f"a rank crashes with {number.name}", ("step", "save"), KILLED, strike)


for crashing in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
    crash(crashing)

# Stands for torchrun's agent: it starts its ranks and waits for them.
AGENT = """
port=$1 program=$2 ranks=$3
for ((rank = 0; rank < ranks; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    TORCHELASTIC_RUN_ID=trial "$program" train --config run.toml --resume auto &
done
wait
"""


@FAULTS("kill -9 of an agent as torchrun's", ("join", "step", "save"), "its ranks end with it")
def kill_agent(trial):
    trial.configure(train__steps=100_000)  # far from its end, so that who trains on is found
    job = trial.job()
    job.start("agent", ["bash", "-c", AGENT, "agent", free_port(15_000, 20_000), PROGRAM, RANKS])
    trial.reach(job)
    job.processes["agent"].kill()
    trial.ends(job, -signal.SIGKILL)
    trial.ends(trial.start("--set", f"train.steps={trial.committed + 2}"), 0)
    trial.finished = True


@FAULTS("nobody reads the output", ("start", "step", "save"), "goes on to its end")
def output_unread(trial):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    job = trial.start(stderr=writer)
    os.close(writer)
    trial.ends(job, 0)
    os.close(reader)
    trial.complete()


@FAULTS("the reader of the output is gone", ("start", "step", "save"), "goes on, or ends and loses nothing")
def output_closed(trial):
    reader, writer = os.pipe()
    job = trial.start(stdout=writer, stderr=subprocess.STDOUT)
    os.close(writer)
    trial.reach(job)
    os.close(reader)
    trial.ends(job, 0, 1, -signal.SIGPIPE)
