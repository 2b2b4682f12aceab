"""How ranks stop, and whom they trust: signals at any moment, a run directory that two runs want, a launcher that
dies, strangers at their ports, ranks of another run, a rank that lives and gets nowhere."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time

from harness import (RUN_TIMEOUT_S, SLUICE, WAIT_ALL, TestCase, alive, committed_steps, environment, free_port, losses,
                     main, rank_processes, records, stop_thread, wait_until)

RANKS = 2
LONG = 100_000  # steps: more than any test waits for
ONE_EACH = ["2x<1,1,1>"]


def slurm_rank(rank, ranks, port, **more):
    """The environment of one rank of a Slurm job on this machine."""
    return environment(SLURM_PROCID=rank, SLURM_LOCALID=rank, SLURM_NTASKS=ranks, SLURM_STEP_NUM_TASKS=ranks,
                       SLURM_TASKS_PER_NODE=ranks, SLURM_NODELIST="localhost", SLURM_JOB_ID=7, MASTER_PORT=port, **more)


def listening_sockets(process_id):
    """(address, port) of the TCP sockets that a process listens at; the address as the kernel's hexadecimal digits."""
    inodes = set()
    for descriptor in pathlib.Path(f"/proc/{process_id}/fd").iterdir():
        with contextlib.suppress(OSError):
            name = os.readlink(descriptor)
            if name.startswith("socket:["):
                inodes.add(name[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{process_id}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].rsplit(":", 1)
                found.append((address, int(port, 16)))
    return found


class Ranks(TestCase):
    elastic = False
    def configure(self, run, **changes):
        return self.config(run, parallel__strategies=ONE_EACH, parallel__select="best", **changes)

    def start_long(self, run, *arguments, **options):
        """A run of RANKS ranks in a process group of its own, some steps under way."""
        directory = self.directory / run
        process = self.start_train(run, RANKS, *arguments, start_new_session=True, **options)
        self.addCleanup(self.end_group, process)
        self.wait_for_step(directory, 2, process)
        return process

    @staticmethod
    def end_group(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class Stopping(Ranks):
    def test_a_signal_to_the_whole_process_group_saves(self):
        """The ranks get it twice: of the group, and of their launcher, which passes it on."""
        for name in (signal.SIGTERM, signal.SIGINT):
            run = self.configure(f"run{name.value}", train__steps=LONG)
            process = self.start_long(run.name)
            os.killpg(process.pid, name)
            outcome = self.finish(process)
            self.assertEqual(outcome.status, 0, str(outcome))
            self.assertEqual(committed_steps(run), [max(losses(run)) + 1])

    def test_a_stop_cuts_an_evaluation_short_and_a_restart_makes_up_for_it(self):
        """Whoever asks for a stop may not leave the time that a large validation set takes."""
        changes = {"train__steps": 3, "train__eval_every": 1, "data__validation_fraction": 0.6,
                   "data__tokens_per_step": 96, "checkpoint__every": 0}
        run = self.configure("run", **changes)
        process = self.start_train("run", RANKS)
        self.wait_for_step(run, 0, process)
        process.send_signal(signal.SIGTERM)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 0, str(outcome))
        self.assertEqual([record["step"] for record in records(run)], [0], "nothing came behind the first step")
        self.assertEqual(committed_steps(run), [1])
        self.train("run", RANKS, "--resume", "auto")
        evaluated = [record["step"] for record in records(run) if "validation_loss" in record]
        self.assertEqual(evaluated, [0, 1, 2])

    def test_a_signal_while_the_program_starts_ends_it_with_a_status(self):
        """Before the ranks have started, and while they start: nobody dies of the signal."""
        self.configure("run", train__steps=LONG)
        for pause_s in (0.1, 0.2, 0.3, 0.5, 0.8, 1.2):
            process = self.start_train("run", RANKS, "--resume", "auto", start_new_session=True)
            self.addCleanup(self.end_group, process)
            held = pathlib.Path(f"/proc/{process.pid}/status")
            # The kernel's loader comes first: a signal that comes before the program's first instruction is its end.
            self.assertTrue(wait_until(lambda held=held: blocks(held.read_text(), signal.SIGTERM), RUN_TIMEOUT_S))
            time.sleep(pause_s - 0.1)
            os.killpg(process.pid, signal.SIGTERM)
            outcome = self.finish(process)
            self.assertIn(outcome.status, (0, 1), str(outcome))
            self.assertNotIn("killed by signal", outcome.stderr)
            if outcome.status == 1:
                self.assertIn("stopped by a signal", outcome.stderr)


def blocks(status, number):
    """Whether a process whose /proc/PID/status this is blocks a signal."""
    mask = int(status.split("SigBlk:\t", 1)[1].split()[0], 16)
    return bool(mask >> (number - 1) & 1)


class RunDirectory(Ranks):
    def test_a_run_directory_in_use_is_refused_and_its_run_goes_on(self):
        run = self.configure("run", train__steps=LONG, checkpoint__every=5)
        process = self.start_long("run")
        outcome = self.train("run", RANKS, "--resume", "auto", expect=1)
        self.assertIn("is being written by process", outcome.stderr)
        self.assertIn("sluice train --config run.toml", outcome.stderr)
        seen = max(losses(run))
        self.wait_for_step(run, seen + 3, process)
        os.kill(process.pid, signal.SIGTERM)
        self.assertEqual(self.finish(process).status, 0)
        found = losses(run)  # no step is missing, none stands twice
        self.assertEqual(sorted(found), list(range(max(found) + 1)))

    def test_a_killed_runs_directory_is_free_at_once(self):
        run = self.configure("run", train__steps=LONG, checkpoint__every=1)
        process = self.start_long("run")
        os.killpg(process.pid, signal.SIGKILL)
        self.finish(process)
        self.configure("run", train__steps=max(committed_steps(run)) + 2, checkpoint__every=1)
        self.assertNotIn("watching for", self.train("run", RANKS, "--resume", "auto").stderr)


class Launcher(Ranks):
    def test_ranks_end_with_an_agent_that_dies(self):
        run = self.configure("run", train__steps=LONG)
        command = " ".join(self.train_command("run"))
        port = free_port()
        common = f"TORCHELASTIC_RUN_ID=x WORLD_SIZE={RANKS} LOCAL_WORLD_SIZE={RANKS} MASTER_ADDR=127.0.0.1 MASTER_PORT={port}"
        script = "".join(f"{common} RANK={rank} LOCAL_RANK={rank} {command} & echo $!;" for rank in range(RANKS))
        with open(self.directory / "ids", "w", encoding="utf-8") as ids:
            agent = subprocess.Popen(["bash", "-c", script + "wait"], cwd=self.directory, env=environment(), stdout=ids,
                                     stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.end_group, agent)
        metrics = run / "metrics.jsonl"
        self.assertTrue(wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 2, RUN_TIMEOUT_S))
        ranks = [int(line) for line in (self.directory / "ids").read_text().split()]
        self.assertTrue(all(map(alive, ranks)))
        os.kill(agent.pid, signal.SIGKILL)
        agent.wait()
        self.assertTrue(wait_until(lambda: not any(map(alive, ranks)), RUN_TIMEOUT_S))


class Strangers(Ranks):
    def test_local_ranks_listen_on_this_machine_alone(self):
        self.configure("run", train__steps=LONG)
        process = self.start_long("run")
        found = [entry for rank in rank_processes(process.pid).values() for entry in listening_sockets(rank)]
        self.assertTrue(found, "Gloo's ports at least")
        for address, port in found:
            self.assertEqual(address, "0100007F", f"port {port}")  # 127.0.0.1

    def test_strangers_at_the_store_change_nothing(self):
        """Connections that say nothing, say nonsense, and speak the protocol of libtorch's store."""
        self.configure("run", train__steps=3)
        port = free_port()
        first = self.start_train("run", 0, env=slurm_rank(0, RANKS, port))
        strangers = []

        def connect():
            with contextlib.suppress(OSError):
                strangers.append(socket.create_connection(("127.0.0.1", port), timeout=5))
                return True
            return False
        self.assertTrue(wait_until(connect, RUN_TIMEOUT_S))
        for number in range(300):
            connect()
            with contextlib.suppress(OSError):
                strangers[-1].sendall((b"", b"\x1b]0;owned\x07" * 50, b"\x0c\x85\x8f\x3c\x0a\0\0\0")[number % 3])
        second = self.start_train("run", 0, env=slurm_rank(1, RANKS, port))
        outcomes = [self.finish(process) for process in (first, second)]
        for stranger in strangers:
            stranger.close()
        for outcome in outcomes:
            self.assertEqual(outcome.status, 0, str(outcome))
            self.assertNotIn("\x1b]0", outcome.stderr)

    def test_ranks_of_another_run_are_told_so(self):
        self.configure("run", train__steps=3)
        port = free_port()
        first = self.start_train("run", 0, env=slurm_rank(0, RANKS, port, SLUICE_SECRET="ours"))
        larger = self.finish(self.start_train("run", 0, env=slurm_rank(1, 3, port, SLUICE_SECRET="ours")))
        self.assertEqual(larger.status, 1, str(larger))
        self.assertIn(f"rank 1 of 3 met a run of {RANKS} ranks", larger.stderr)
        other = self.finish(self.start_train("run", 0, env=slurm_rank(1, RANKS, port, SLUICE_SECRET="theirs")))
        self.assertEqual(other.status, 1, str(other))
        self.assertIn("another run listens", other.stderr)
        second = self.start_train("run", 0, env=slurm_rank(1, RANKS, port, SLUICE_SECRET="ours"))
        for process in (first, second):
            outcome = self.finish(process)
            self.assertEqual(outcome.status, 0, str(outcome))

    def test_a_port_that_is_taken_is_named_as_the_cause(self):
        self.configure("run", train__steps=3)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            env = slurm_rank(0, RANKS, taken.getsockname()[1])
            outcome = self.finish(self.start_train("run", 0, env=env))
        self.assertEqual(outcome.status, 1, str(outcome))
        self.assertIn("Address already in use", outcome.stderr)
        self.assertIn("MASTER_PORT", outcome.stderr)


class Progress(Ranks):
    def test_a_rank_that_lives_and_gets_nowhere_is_named(self):
        """Its main thread stands still, wherever it is; its heartbeat goes on."""
        for attempt in range(3):
            run = self.configure(f"run{attempt}", train__steps=LONG, train__stall_s=3, data__tokens_per_step=4096,
                                 checkpoint__every=1, train__eval_every=1, data__validation_fraction=0.1)
            process = self.start_long(run.name)
            self.expect_named(process, rank_processes(process.pid)[1])

    def test_a_rank_that_gets_nowhere_before_its_first_step_is_named(self):
        """It reads a file that never answers: a calibration that is a pipe without a writer."""
        self.configure("run", train__steps=LONG, train__stall_s=3, parallel__calibration="silent.json")
        os.mkfifo(self.directory / "silent.json")
        self.expect_stuck("reading the calibration")

    def test_rank_0_gets_nowhere_though_its_lock_beats(self):
        """It alone reads the tokenizer beside the corpus; in that time the lock of the run directory beats."""
        self.configure("run", train__steps=LONG, train__stall_s=7)
        os.mkfifo(self.directory / "tokenizer.model")
        self.expect_stuck("opening the corpora")

    def expect_stuck(self, what):
        process = self.start_train("run", RANKS, start_new_session=True)
        self.addCleanup(self.end_group, process)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 1, str(outcome))
        self.assertRegex(outcome.stderr, rf"no progress on rank \d: it is stuck while {what}, for ")

    def expect_named(self, launcher, rank):
        """Stops a rank's main thread and waits for what its run says of it."""
        if not stop_thread(rank):
            self.skipTest("the system lets nobody stop a thread")
        self.assertTrue(wait_until(lambda: not alive(rank), RUN_TIMEOUT_S), "nobody noticed")
        os.waitpid(rank, WAIT_ALL)  # who stopped it is the first to hear of its end
        outcome = self.finish(launcher)
        self.assertEqual(outcome.status, 1, str(outcome))
        self.assertRegex(outcome.stderr, r"no progress on rank \d: it (is stuck|waits for other ranks) ")


class Limits(Ranks):
    def test_more_threads_than_cores_are_said_and_sleep(self):
        cores = len(os.sched_getaffinity(0))
        self.configure("run", train__steps=2, train__threads=cores + 1)
        undecided = environment()
        undecided.pop("OMP_WAIT_POLICY", None)  # whoever has set it knows
        outcome = self.train("run", RANKS, env=undecided)
        self.assertIn(f"are {RANKS * (cores + 1)} threads for ", outcome.stderr)
        self.assertEqual(outcome.stderr.count("threads for"), 1)

    def test_no_room_to_start_is_a_line(self):
        for limit in ("-v 1500000", "-v 500000", "-n 8", "-n 24"):
            run = f"run{limit.replace(' ', '')}"
            self.configure(run, train__steps=2)
            command = " ".join(self.train_command(run, RANKS))
            outcome = self.finish(self.start(["bash", "-c", f"ulimit {limit}; exec {command}"]))
            self.assertIn(outcome.status, (0, 1), f"{limit}: {outcome}")
            self.assertNotIn("terminate called", outcome.stderr, limit)
            self.assertNotIn("killed by signal", outcome.stderr, limit)
            self.assertNotRegex(outcome.stderr, r"(?m)Resource temporarily unavailable$", limit)

    def test_no_room_for_the_libraries_is_a_line(self):
        """From too little for the loader (its own line, 127) to enough: never a signal, and one line each."""
        seen = set()
        for kibibytes in range(300_000, 600_000, 12_000):
            outcome = self.finish(self.start(["bash", "-c", f"ulimit -v {kibibytes}; exec {os.path.abspath(SLUICE)} train --help"]))
            seen.add(outcome.status)
            if outcome.status == 1:
                self.assertRegex(outcome.stderr, r"\Asluice: out of memory: this process may use \d+ MiB of address space "
                                 r"\(ulimit -v\), and the program needs \d+ MiB to start: raise the limit\n\Z")
            elif outcome.status == 127:
                self.assertRegex(outcome.stderr, r"\A.*error while loading shared libraries: .*\n\Z")
            else:
                self.assertEqual(outcome.status, 0, f"{kibibytes}: {outcome}")
        self.assertEqual(seen, {0, 1, 127})


if __name__ == "__main__":
    main()
