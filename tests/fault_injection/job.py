"""The processes of one run: how they are started, found, struck and waited for.

Every process carries the trial's token in its environment, so that whatever it starts is found again, whoever
its parent is.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

from harness import SLUICE, alive, children, environment, free_port, local_rank, wait_until

PROGRAM = os.path.abspath(SLUICE)
RANKS = 3
# How long a run that something happened to may take to end: far beyond what any machine needs, since only a run
# that is stuck must be told from a slow one.
STUCK_S = 300
LEFTOVER_S = 60


class Broken(AssertionError):
    """What was promised does not hold."""


class Ending:
    """How one process ended: its exit status, as subprocess gives it, and what it wrote."""

    def __init__(self, name, status, output):
        self.name, self.status, self.output = name, status, output

    def __str__(self):
        lines = [line for line in self.output.splitlines() if line.strip()]
        return f"{self.name} ended with {self.status}" + (f": {lines[-1]}" if lines else "")


def processes_of(token):
    """{process id: its environment} of all living processes of a trial."""
    found = {}
    mark = f"TRIAL_TOKEN={token}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            variables = pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            if mark in variables and alive(int(entry)):
                found[int(entry)] = variables
    return found


def listening_ports(process_id):
    """[(address, port)] at which a process listens with IPv4 or IPv6."""
    inodes = set()
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{process_id}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{process_id}/fd/{descriptor}")
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{process_id}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    found.append(int(fields[1].rsplit(":", 1)[1], 16))
    return sorted(set(found))


class Job:
    """One start of a run: a local launcher with its ranks, or ranks that were started one by one."""

    def __init__(self, directory, token):
        self.directory, self.token = directory, token
        self.processes = {}  # name: Popen
        self.by_hand = False
        self.ports = set()  # at which its processes listened when last looked

    def start(self, name, command, *, prefix=(), variables=None, inherit=True, **options):
        """Starts one process in a session of its own; its output goes to NAME.out, numbered."""
        number = len(list(self.directory.glob("*.out")))
        output = self.directory / f"{number:02d}-{name}.out"
        own = {"TRIAL_TOKEN": self.token, **({"TMPDIR": self.directory / "tmp"} if inherit else {}), **(variables or {})}
        environ = environment(**own) if inherit else {key: str(value) for key, value in own.items()}
        with open(output, "wb") as file:
            streams = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT, **options}
            process = subprocess.Popen([*prefix, *map(str, command)], env=environ, start_new_session=True,
                                       **{"cwd": self.directory, **streams})
        process.output = output
        self.processes[name] = process
        return process

    def start_locally(self, run, *arguments, ranks=RANKS, **options):
        """`sluice train --nproc`."""
        command = [PROGRAM, "train", "--config", f"{run}.toml", "--nproc", ranks, *arguments]
        return self.start("launcher", command, **options)

    def start_rank(self, run, rank, port, *arguments, ranks=RANKS, address="127.0.0.1", local=None, name=None,
                   variables=None, **options):
        """One rank as an MPI launcher starts it; local: (its number on its node, ranks of the node)."""
        self.by_hand = True
        number, count = local or (rank, ranks)
        meeting = {"PMI_RANK": rank, "PMI_SIZE": ranks, "MPI_LOCALRANKID": number, "MPI_LOCALNRANKS": count,
                   "MASTER_ADDR": address, "MASTER_PORT": port, **(variables or {})}
        command = [PROGRAM, "train", "--config", f"{run}.toml", *arguments]
        return self.start(name or f"rank{rank}", command, variables=meeting, **options)

    def start_by_hand(self, run, *arguments, ranks=RANKS, **options):
        """All ranks on this machine, without a launcher."""
        port = free_port(15_000, 20_000)
        for rank in range(ranks):
            self.start_rank(run, rank, port, *arguments, ranks=ranks, **options)
        return port

    @property
    def launcher(self):
        return self.processes["launcher"]

    def ranks(self):
        """{rank: process id} of the ranks that have begun and live."""
        found = {}
        for process_id, variables in processes_of(self.token).items():
            local = local_rank(process_id)
            if local is not None:
                found[local] = process_id
                continue
            for entry in variables:
                if entry.startswith((b"PMI_RANK=", b"RANK=")):
                    found[int(entry.split(b"=")[1])] = process_id
        return found

    def rank(self, rank):
        """The process of a rank, waited for if it has not begun; None if it has ended."""
        wait_until(lambda: rank in self.ranks() or self.ended(), STUCK_S, 0.01)
        return self.ranks().get(rank)

    def running(self):
        return any(process.poll() is None for process in self.processes.values())

    def ended(self):
        """Whether any of its processes has ended: what was to be struck may be gone."""
        return any(process.poll() is not None for process in self.processes.values())

    def note_ports(self):
        """Remembers, and returns, the ports of its processes."""
        now = set()
        for process_id in processes_of(self.token):
            now.update(listening_ports(process_id))
        self.ports |= now
        return sorted(now)

    def signal_worker(self, rank, number):
        """Sends a signal to the process that a rank's supervisor started last; False if there is none."""
        found = [process_id for process_id in processes_of(self.token) if local_rank(process_id) == rank]
        with contextlib.suppress(ProcessLookupError):
            for worker in [child for process_id in found for child in children(process_id)]:
                os.kill(worker, number)
                return True
        return False

    def signal_rank(self, rank, number):
        """Sends a signal to a rank, as soon as it has begun; False if it has ended."""
        process_id = self.rank(rank)
        if process_id is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, number)
            return True
        return False

    def signal_group(self, number):
        """To the launcher's whole process group at once, as a terminal, `timeout` or a shell does."""
        for process in self.processes.values():
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def wait(self, limit_s=STUCK_S):
        """Waits until all its processes have ended; their endings by name. Broken if they are stuck."""
        deadline = time.monotonic() + limit_s
        while self.running():
            if time.monotonic() > deadline:
                stuck = [name for name, process in self.processes.items() if process.poll() is None]
                raise Broken(f"stuck for {limit_s} s: {', '.join(stuck)}; {self.stacks()}")
            time.sleep(0.005)
        return self.endings()

    def endings(self):
        return {name: Ending(name, process.returncode, process.output.read_text(errors="replace"))
                for name, process in self.processes.items()}

    def stacks(self):
        """Where the threads of what is stuck wait, in a word."""
        places = {}
        for process_id in processes_of(self.token):
            for thread in pathlib.Path(f"/proc/{process_id}/task").glob("*"):
                with contextlib.suppress(OSError):
                    place = f"{(thread / 'comm').read_text().strip()} {(thread / 'wchan').read_text().strip()}"
                    places[place] = places.get(place, 0) + 1
        return ", ".join(f"{count} x {place}" for place, count in sorted(places.items()))

    def leave_nothing(self):
        """Nothing of the trial runs on when the job has ended. Broken with what does."""
        if wait_until(lambda: not processes_of(self.token), LEFTOVER_S, 0.01):
            return
        left = []
        for process_id in processes_of(self.token):
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{process_id}/cmdline").read_bytes().split(b"\0")
                left.append(f"{process_id} {words[0].decode(errors='replace')}")
        raise Broken(f"left over: {', '.join(left)}")


def end_all(token):
    """Ends whatever a trial has left, stopped processes included."""
    for _ in range(50):
        left = processes_of(token)
        if not left:
            return
        for process_id in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process_id, signal.SIGKILL)
        time.sleep(0.02)
