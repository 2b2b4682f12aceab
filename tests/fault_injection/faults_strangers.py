"""Strangers: connections and processes that do not belong to the run, and ranks that do not fit."""

import contextlib
import os
import socket
import struct
import threading
import time

from fault import Group
from harness import free_port
from job import RANKS, Broken, listening_ports, processes_of

FAULTS = Group("strangers")
UNHARMED = "goes on"
MET = ("start", "join", "step", "save")


class Callers:
    """Connects to every port at which the run listens, as soon as it does, until closed."""

    def __init__(self, job, greet, each=1):
        self.job, self.greet, self.each = job, greet, each
        self.called, self.sockets = set(), []
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self.call_all, daemon=True)
        self.thread.start()

    def call_all(self):
        while not self.closing.wait(0.002):
            for process_id in processes_of(self.job.token):
                for port in listening_ports(process_id):
                    if (process_id, port) not in self.called:
                        self.called.add((process_id, port))
                        self.call(port)

    def call(self, port):
        for _ in range(self.each):
            with contextlib.suppress(OSError):
                caller = socket.create_connection(("127.0.0.1", port), timeout=5)
                caller.settimeout(1)
                self.sockets.append(caller)
                self.greet(caller)

    def close(self):
        self.closing.set()
        self.thread.join()
        for caller in self.sockets:
            caller.close()


def silent(_caller):
    """Says nothing for as long as the run lasts."""


def reset(caller):
    """Leaves at once without a goodbye."""
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()


def saying(data):
    def greet(caller):
        caller.sendall(data)
    return greet


def half_a_word(caller):
    """A few bytes of what could be a greeting, then nothing."""
    caller.sendall(b"\1\0\0")


GREETINGS = (
    ("silent connections", silent, 3), ("connections that are reset", reset, 3),
    ("half a greeting", half_a_word, 2), ("random bytes", saying(os.urandom(4096)), 2),
    ("a web browser", saying(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), 2),
    ("a megabyte of zeros", saying(bytes(1 << 20)), 1), ("huge lengths", saying(b"\xff" * 64), 2),
    ("terminal escapes", saying(b"\x1b]0;owned\x07\x1b[2J" * 20), 2), ("800 connections", silent, 800))


def called_by(name, greet, each):
    def strike(trial):
        job = trial.start()
        callers = Callers(job, greet, each) if trial.phase == "start" else None
        if callers is None:
            trial.reach(job)
            callers = Callers(job, greet, each)
        trial.at_the_end(callers.close)
        endings = trial.ends(job, 0)
        trial.never_says(endings, "\x1b]0;owned")
        if not callers.called:
            raise Broken("the run listened nowhere: nothing was tried")
        trial.complete()
    FAULTS.add(f"{name} on every port", ("start", "step") if each < 800 else ("step",), UNHARMED, strike)


for caller_name, caller_greet, caller_count in GREETINGS:
    called_by(caller_name, caller_greet, caller_count)


def stray(name, wanted, rank, ranks, when, *arguments):
    """A rank that does not belong to the run comes to its store."""
    def strike(trial):
        job, strayed = trial.job(), trial.job()
        port = free_port(15_000, 20_000)

        def come():
            (trial.directory / "stray.toml").write_text(
                (trial.directory / "run.toml").read_text().replace('"run"', '"stray"'))
            strayed.start_rank("stray", rank, port, "--set", "train.join_timeout_s=5", *arguments, ranks=ranks,
                               local=(min(rank, ranks - 1), ranks), name="stray")
        if trial.phase == "start":
            come()
            time.sleep(trial.chance.uniform(0, 0.5))
        for number in range(RANKS):
            job.start_rank("run", number, port, "--resume", "auto")
        if trial.phase != "start":
            trial.reach(job)
            come()
        trial.at_the_end(lambda: [process.kill() for process in strayed.processes.values()])
        for ending in job.wait().values():
            if ending.status != 0:
                raise Broken(str(ending))
        for ending in strayed.wait().values():
            if ending.status not in (1, 2):
                raise Broken(f"{ending}; wanted 1 or 2")
        trial.ends(job, 0)
        trial.complete()
    FAULTS.add(name, when, wanted, strike)


stray("a stray rank of a larger world", "the stray ends 1, the run goes on", 3, 5, MET)
stray("a stray rank 1 of a smaller world", "the stray ends 1, the run goes on", 1, 2, MET)
stray("a second rank 1 of the same world", "the second ends 1, the run goes on", 1, RANKS, ("step", "save"))


@FAULTS("two processes are rank 1 from the start", ("start",), "ends 1 and says so")
def rank_twice(trial):
    trial.configure(train__join_timeout_s=5)
    job = trial.job()
    port = job.start_by_hand("run", "--resume", "auto")
    job.start_rank("run", 1, port, "--resume", "auto", name="second")
    endings = job.wait()
    trial.says(endings, "rank 1")
    if all(ending.status == 0 for ending in endings.values()):
        raise Broken("both trained")
    job.leave_nothing()


@FAULTS("a rank never comes", ("start",), "ends 1 and names it")
def rank_missing(trial):
    trial.configure(train__join_timeout_s=3)
    job = trial.job()
    port = free_port(15_000, 20_000)
    missing = trial.chance.randrange(RANKS)
    for rank in range(RANKS):
        if rank != missing:
            job.start_rank("run", rank, port, "--resume", "auto")
    trial.ends(job, 1, says=f"rank {missing} of {RANKS} did not join")


def other_rank(name, says, statuses, *arguments):
    """One rank was given something else than the others."""
    def strike(trial):
        job = trial.job()
        port = free_port(15_000, 20_000)
        odd = trial.chance.randrange(RANKS)
        for rank in range(RANKS):
            job.start_rank("run", rank, port, "--resume", "auto", *(arguments if rank == odd else ()))
        trial.ends(job, *statuses, says=says)
    FAULTS.add(name, ("start",), "all end with one line", strike)


other_rank("a rank has another learning rate", "configuration", (2,), "--set", "optimizer.lr=0.5")
other_rank("a rank has an unknown key", r"train\.stepz", (2,), "--set", "train.stepz=3")
other_rank("a rank has fewer steps", "configuration", (2,), "--set", "train.steps=5")
other_rank("a rank has no corpus", "elsewhere|configuration", (2,), "--set", 'data.train=[["elsewhere",1.0]]')
