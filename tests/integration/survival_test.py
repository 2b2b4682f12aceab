"""What a run survives under launchers that are not ours: the table of docs/operating.md. Whatever is lost, no step that
was sealed in memory is, and the losses are those of a run that nothing disturbed. No checkpoint is saved here.

Arguments: the launchers to test, of ByHand, Mpirun, Slurm, Torchrun; none: all.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import signal
import time
import unittest

import local_slurm
from harness import (RUN_TIMEOUT_S, TORCHRUN, TestCase, children, environment, free_port, losses, main, records,
                     torchrun_missing, wait_until)

RANKS = 4
STEPS = 30
MPIRUN = shutil.which("mpirun")
MEMORY = pathlib.Path("/dev/shm")


def left_in_memory(since):
    """Named memory that was made since then and that nobody holds."""
    left = []
    for path in MEMORY.glob("sluice-*.seals"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ctime > since:
                left.append(path.name)
    return left


def descendants(process_id):
    """Processes below one, those nearest to it first."""
    found = children(process_id)
    for child in found:
        found += children(child)
    return found


def has_sigterm(process_id, which):
    """Whether SIGTERM is blocked ("SigBlk": it is the program then, which reads signals where it is ready for them), or was
    not read yet ("ShdPnd")."""
    status = pathlib.Path(f"/proc/{process_id}/status").read_text()
    return int(re.search(which + r":\s*([0-9a-f]+)", status).group(1), 16) >> (signal.SIGTERM - 1) & 1 == 1


class Survival(TestCase):
    def setUp(self):
        super().setUp()
        self.begin = time.time()
        self.expected = losses(self.kept(self.train_whole))

    def train_whole(self, **changes):
        whole = self.configure("whole", **changes)
        self.train("whole", RANKS)
        return whole

    def configure(self, run, **changes):
        return self.config(run, **{"train__steps": STEPS, "train__dtype": "float64", "elastic__enabled": True,
                                   "elastic__snapshot_every": 1, **changes})

    def configure_endless(self, run):
        """One that lasts as long as its launcher takes to notice a loss; it ends when it is asked to."""
        return self.configure(run, train__steps=100_000, optimizer__decay="constant")

    def reach(self, run, epoch, step):
        """Returns when a line of that epoch, or a later one, and that step are there."""
        def reached():
            try:
                return any(record["restarts"] >= epoch and record["step"] >= step for record in records(run))
            except (OSError, ValueError, KeyError):
                return False
        self.assertTrue(wait_until(reached, RUN_TIMEOUT_S), f"{run} never reached step {step} in membership {epoch}")

    def goes_on_without(self, worker, process, run):
        """Another worker takes its place. `worker`: () -> its process, once the run is on its way."""
        self.reach(run, 0, 4)
        os.kill(worker(), signal.SIGKILL)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 0, str(outcome))
        self.assertIn("membership 1 of 4 ranks (4 before) goes on after step", outcome.stderr)
        self.as_undisturbed(run)

    def as_undisturbed(self, run):
        """And nothing is left in memory, of killed supervisors either."""
        found = losses(run)
        self.assertEqual(sorted(found), list(range(STEPS)))
        for step, (loss, _) in self.expected.items():
            self.assertLessEqual(abs(found[step][0] - loss), 1e-11 * abs(loss), f"loss of step {step}")
        remains = left_in_memory(self.begin)
        self.assertEqual(remains, [], "what the run left in memory")

    def begins_as_undisturbed(self, endless):
        found = losses(endless)
        for step, (loss, _) in losses(self.kept(self.train_whole, optimizer__decay="constant")).items():
            self.assertLessEqual(abs(found[step][0] - loss), 1e-11 * abs(loss), f"loss of step {step}")


class ByHand(Survival):
    """As Slurm starts ranks, with --no-kill: it lets the others be when a task is lost."""

    def start_ranks(self, run):
        port = free_port(20_000, 30_000)
        return [self.start_train(run.name, 0, env=environment(
            SLURM_PROCID=rank, SLURM_LOCALID=rank, SLURM_NTASKS=RANKS, SLURM_STEP_NUM_TASKS=RANKS,
            SLURM_TASKS_PER_NODE=RANKS, SLURM_NODELIST="localhost", SLURM_JOB_ID=port - 20_000))
            for rank in range(RANKS)]

    def end_well(self, processes):
        for process in processes:
            outcome = self.finish(process)
            self.assertEqual(outcome.status, 0, str(outcome))

    def kill_all(self, processes):
        for process in processes:
            process.kill()
        for process in processes:
            self.finish(process)

    def test_a_worker_dies_and_the_run_goes_on(self):
        run = self.configure("run")
        processes = self.start_ranks(run)
        self.reach(run, 0, 4)
        os.kill(children(processes[1].pid)[0], signal.SIGKILL)
        self.end_well(processes)
        self.assertEqual(max(record["restarts"] for record in records(run)), 1)
        self.as_undisturbed(run)

    def test_a_supervisor_dies_and_another_joins_by_hand(self):
        run = self.configure_endless("run")
        processes = self.start_ranks(run)
        self.reach(run, 0, 4)
        processes[0].kill()
        self.reach(run, 1, 4)
        stranger = self.finish(self.start_train("run", 0, "--join", env=environment(SLUICE_SECRET="another")))
        self.assertEqual(stranger.status, 1, str(stranger))
        self.assertIn("cannot join the run in run: ", stranger.stderr)
        self.assertIn("SLUICE_SECRET is not the one of its ranks", stranger.stderr)
        processes.append(self.start_train("run", 0, "--join", env=environment()))
        self.reach(run, 2, STEPS)
        processes[1].send_signal(signal.SIGTERM)
        self.end_well(processes[1:])
        self.begins_as_undisturbed(run)

    def test_all_die_and_the_next_attempt_finds_what_they_had_in_memory(self):
        run = self.configure("run")
        processes = self.start_ranks(run)
        self.reach(run, 0, 8)
        self.kill_all(processes)
        sealed = max(losses(run))
        port = free_port()
        processes = [self.start_next_attempt(rank, port) for rank in range(RANKS)]
        outcomes = [self.finish(process) for process in processes]
        self.assertEqual([outcome.status for outcome in outcomes], [0] * RANKS, "\n".join(map(str, outcomes)))
        self.assertRegex(outcomes[0].stderr, rf"membership 1 of 4 ranks goes on after step ({sealed}|{sealed + 1})\n")
        self.as_undisturbed(run)

    def start_next_attempt(self, rank, port, **options):
        return self.start_train("run", 0, "--resume", "auto", env=environment(
            PMI_RANK=rank, PMI_SIZE=RANKS, MPI_LOCALRANKID=rank, MPI_LOCALNRANKS=RANKS, MASTER_PORT=port), **options)

    def tell_to_stop(self, ranks, port):
        """These ranks of the next attempt, rank 0 among them, told so while they wait for others; they have heard it."""
        processes = []
        for rank in ranks:
            with open(self.directory / f"rank-{rank}.err", "wb") as errors:
                processes.append(self.start_next_attempt(rank, port, stderr=errors))
        for process in processes:
            wait_until(lambda: has_sigterm(process.pid, "SigBlk"), RUN_TIMEOUT_S)
            process.send_signal(signal.SIGTERM)
        for process in processes:
            wait_until(lambda: not has_sigterm(process.pid, "ShdPnd"), RUN_TIMEOUT_S)
        said = self.directory / "rank-0.err"
        told = wait_until(lambda: "told to stop before all ranks have met" in said.read_text(), RUN_TIMEOUT_S)
        self.assertTrue(told, said.read_text())
        return processes

    def test_ranks_told_to_stop_before_they_have_met_save_what_they_have_in_memory(self):
        run = self.configure("run")
        processes = self.start_ranks(run)
        self.reach(run, 0, 8)
        self.kill_all(processes)
        sealed = max(losses(run))
        port = free_port()
        processes = self.tell_to_stop(range(RANKS - 1), port)
        processes.append(self.start_next_attempt(RANKS - 1, port))
        statuses = [self.finish(process).status for process in processes]
        said = "".join(path.read_text() for path in sorted(self.directory.glob("rank-*.err")))
        self.assertEqual(statuses, [0] * RANKS, said)
        saved = [int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*")]
        self.assertIn(saved, ([sealed], [sealed + 1], [sealed + 2]))  # steps done; memory may be one behind the line
        port = free_port()
        self.end_well([self.start_next_attempt(rank, port) for rank in range(RANKS)])
        self.as_undisturbed(run)

    def test_a_rank_told_twice_to_stop_leaves_its_memory_to_the_next_attempt(self):
        run = self.configure("run")
        processes = self.start_ranks(run)
        self.reach(run, 0, 4)
        self.kill_all(processes)
        process, = self.tell_to_stop([0], free_port())
        while process.poll() is None:  # signals close together are one
            process.send_signal(signal.SIGTERM)
            time.sleep(1)
        self.assertEqual(process.returncode, 1)
        self.assertIn("stopped by a second signal before all ranks had met; nothing was saved, but the newest steps stay in "
                      "this machine's memory: start again with --resume auto", (self.directory / "rank-0.err").read_text())
        port = free_port()
        outcomes = [self.finish(process) for process in [self.start_next_attempt(rank, port) for rank in range(RANKS)]]
        self.assertEqual([outcome.status for outcome in outcomes], [0] * RANKS, "\n".join(map(str, outcomes)))
        self.assertIn("membership 1 of 4 ranks goes on after step", outcomes[0].stderr)
        self.as_undisturbed(run)

    def test_without_resume_a_run_begins_anew_and_clears_the_memory(self):
        run = self.configure("run")
        processes = self.start_ranks(run)
        self.reach(run, 0, 3)
        self.kill_all(processes)
        self.end_well(self.start_ranks(run))
        self.assertEqual({record["restarts"] for record in records(run)}, {0})
        self.as_undisturbed(run)

    def test_nobody_to_join(self):
        self.configure("run")
        outcome = self.finish(self.start_train("run", 0, "--join"))
        self.assertEqual(outcome.status, 2, str(outcome))
        self.assertIn("no run that can be joined is under way in run", outcome.stderr)


@unittest.skipUnless(MPIRUN, "mpirun is not there: tools/bootstrap --test installs it")
class Mpirun(Survival):
    def mpirun(self, run, *arguments):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return self.start([MPIRUN, *root, "--oversubscribe", "-n", str(RANKS), *self.train_command(run.name, 0, *arguments)],
                          start_new_session=True)

    def test_a_worker_dies_and_the_run_goes_on(self):
        run = self.configure("run")
        process = self.mpirun(run)
        self.goes_on_without(lambda: descendants(process.pid)[-1], process, run)

    def test_a_supervisor_dies_and_the_next_start_goes_on(self):
        run = self.configure_endless("run")
        process = self.mpirun(run, "--resume", "auto")
        self.reach(run, 0, 4)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        outcome = self.finish(process)
        self.assertNotEqual(outcome.status, 0, str(outcome))
        done = max(losses(run))  # the others went on until mpirun ended them, and may have saved
        process = self.mpirun(run, "--resume", "auto")
        self.reach(run, 0, done + STEPS)
        process.send_signal(signal.SIGTERM)
        outcome = self.finish(process)
        self.assertRegex(outcome.stderr, r"membership \d of 4 ranks goes on after step \d+\n|resuming from")
        self.assertEqual(sorted(losses(run)), list(range(max(losses(run)) + 1)))
        self.begins_as_undisturbed(run)


@unittest.skipIf(local_slurm.missing(), local_slurm.missing())
class Slurm(Survival):
    """With a node that is this machine."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.slurm = local_slurm.LocalSlurm()
        cls.addClassCleanup(cls.slurm.stop)

    def srun(self, run):
        return self.start(["srun", "--ntasks", str(RANKS), "--no-kill", "--kill-on-bad-exit=0", *self.train_command(run.name)],
                          environment(MASTER_ADDR="127.0.0.1") | self.slurm.environment)

    def ranks(self, run):
        """{task: its supervisor}"""
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.path.realpath(path / "cwd") != os.path.realpath(run.parent):
                    continue
                task = re.search(rb"SLURM_PROCID=(\d+)", (path / "environ").read_bytes())
                if task and children(int(path.name)):
                    found[int(task.group(1))] = int(path.name)
        return found

    def test_a_worker_dies_and_the_run_goes_on(self):
        run = self.configure("run")
        process = self.srun(run)
        self.goes_on_without(lambda: children(self.ranks(run)[2])[0], process, run)

    def test_a_supervisor_dies_and_the_others_go_on(self):
        run = self.configure("run")
        process = self.srun(run)
        self.reach(run, 0, 4)
        os.kill(self.ranks(run)[0], signal.SIGKILL)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 137, f"srun tells of the lost task: {outcome}")
        self.assertIn("membership 1 of 3 ranks (4 before) goes on after step", outcome.stderr)
        self.as_undisturbed(run)


@unittest.skipIf(torchrun_missing(), torchrun_missing())
class Torchrun(Survival):
    def torchrun(self, run):
        command = [*TORCHRUN, "--no-python", f"--nproc-per-node={RANKS}", "--max-restarts=1",
                   f"--master-port={free_port()}", *self.train_command(run.name, 0, "--resume", "auto")]
        return self.start(command)

    def supervisors(self, process):
        return [child for child in descendants(process.pid) if children(child)]

    def next_attempt(self, process, before):
        """Supervisors that were started anew, once all are there."""
        found = [child for child in self.supervisors(process) if child not in before]
        return found if len(found) == RANKS else []

    def test_a_worker_dies_and_the_run_goes_on(self):
        run = self.configure("run")
        process = self.torchrun(run)
        self.goes_on_without(lambda: children(self.supervisors(process)[0])[0], process, run)

    def test_a_supervisor_dies_and_the_agent_s_next_attempt_goes_on_from_memory(self):
        run = self.configure_endless("run")
        process = self.torchrun(run)
        self.reach(run, 0, 4)
        before = self.supervisors(process)
        os.kill(before[-1], signal.SIGKILL)
        self.assertTrue(wait_until(lambda: self.next_attempt(process, before), RUN_TIMEOUT_S))
        self.reach(run, 0, max(losses(run)) + STEPS)
        os.kill(self.next_attempt(process, before)[0], signal.SIGTERM)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 0, str(outcome))
        self.assertRegex(outcome.stderr, r"membership \d of 4 ranks goes on after step \d+\n|resuming from")
        self.assertEqual(sorted(losses(run)), list(range(max(losses(run)) + 1)))
        self.begins_as_undisturbed(run)


if __name__ == "__main__":
    main()
