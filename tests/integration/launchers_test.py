"""However its ranks are started, a run with the same ranks, threads and calibration has the same losses, bit
for bit.

With the argument `torchrun`: torchrun's ways (needs the environment that `make parity` makes); else all others.
"""

import os
import pathlib
import shutil
import signal
import sys
import unittest

from harness import TestCase, committed_steps, environment, free_port, losses

RANKS = 4
MPIRUN = shutil.which("mpirun")
TORCHRUN = pathlib.Path(os.environ.get("SLUICE_DEPS") or pathlib.Path.home() / ".cache/sluice") / "parity/bin/torchrun"


class Launchers(TestCase):
    def setUp(self):
        super().setUp()
        self.config("reference")
        self.train("reference", RANKS)
        self.reference = losses(self.directory / "reference")
        self.assertEqual(len(self.reference), 8)

    def configure(self, run):
        self.config(run, parallel__calibration=str(self.directory / "reference" / "calibration.json"))

    def check(self, run, processes):
        """All end well, and the losses are the reference's."""
        for outcome in [self.finish(process) for process in processes]:
            self.assertEqual(outcome.status, 0, str(outcome))
        self.assertEqual(losses(self.directory / run), self.reference)

    def check_ranks(self, run, variables):
        """Starts the ranks by hand, each with `variables(rank)` in its environment."""
        self.configure(run)
        self.check(run, [self.start_train(run, 0, env=environment(**variables(rank))) for rank in range(RANKS)])


class ByHand(Launchers):
    def test_a_calibration_file_changes_nothing(self):
        self.configure("again")
        self.check("again", [self.start_train("again", RANKS)])

    def test_slurm(self):
        port = free_port(20_000, 30_000)
        self.check_ranks("slurm", lambda rank: {
            "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NTASKS": RANKS, "SLURM_STEP_NUM_TASKS": RANKS,
            "SLURM_TASKS_PER_NODE": RANKS, "SLURM_NODELIST": "localhost", "SLURM_JOB_ID": port - 20_000})

    def test_open_mpi(self):
        port = free_port()
        self.check_ranks("openmpi", lambda rank: {
            "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": RANKS, "OMPI_COMM_WORLD_LOCAL_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_SIZE": RANKS, "MASTER_PORT": port})

    def test_two_hosts_of_mpich(self):
        port = free_port()
        self.check_ranks("mpich", lambda rank: {
            "PMI_RANK": rank, "PMI_SIZE": RANKS, "MPI_LOCALRANKID": rank % 2, "MPI_LOCALNRANKS": 2,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})


@unittest.skipUnless(MPIRUN, "mpirun is not installed")
class Mpirun(Launchers):
    def mpirun(self, run):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return self.start([MPIRUN, *root, "--oversubscribe", "-n", str(RANKS), *self.train_command(run)],
                          start_new_session=True)

    def test_ranks_of_mpirun(self):
        self.configure("mpirun")
        self.check("mpirun", [self.mpirun("mpirun")])

    def test_mpirun_that_is_told_to_stop_leaves_its_ranks_time_to_save(self):
        """Its own status says that the job was ended."""
        run = self.config("told", train__steps=100_000)
        process = self.mpirun("told")
        self.wait_for_step(run, 2, process)
        process.send_signal(signal.SIGTERM)
        outcome = self.finish(process)
        self.assertEqual(committed_steps(run), [max(losses(run)) + 1], str(outcome))


@unittest.skipUnless(TORCHRUN.exists(), f"{TORCHRUN} is not there: `make parity` installs it")
class Torchrun(Launchers):
    def torchrun(self, run, *arguments):
        command = [str(TORCHRUN), "--no-python", *arguments, *self.train_command(run)]
        return self.start(command)

    def test_one_agent(self):
        self.configure("torchrun")
        self.check("torchrun", [self.torchrun("torchrun", f"--nproc-per-node={RANKS}",
                                              f"--master-port={free_port()}")])

    def test_two_agents(self):
        self.configure("agents")
        port = free_port()
        self.check("agents", [self.torchrun("agents", "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2",
                                            "--master-addr=127.0.0.1", f"--master-port={port}")
                              for node in range(2)])


if __name__ == "__main__":
    wanted = ["Torchrun"] if sys.argv[1:] == ["torchrun"] else ["ByHand", "Mpirun"]
    unittest.main(argv=[sys.argv[0], *wanted], verbosity=2)
