"""However its ranks are started, a run with the same ranks, threads and calibration has the same losses, bit for bit; and
only workers touch the device, never what forks them.

Arguments: the launchers to test, of ByHand, Mpirun, Slurm, Torchrun; none: all.
"""

import os
import shutil
import signal
import unittest

import local_slurm
from harness import TORCHRUN, TestCase, committed_steps, environment, free_port, losses, main, torchrun_missing

RANKS = 4
MPIRUN = shutil.which("mpirun")
CUDA_FORK_RULE = os.environ.get("CUDA_FORK_RULE", "")


class Launchers(TestCase):
    """`start_ranks(run, **variables)` of each launcher: the processes that it starts, with variables in their environment."""

    def configure(self, run, **changes):
        self.config(run, parallel__calibration=str(self.directory / "reference" / "calibration.json"), **changes)

    def check(self, run):
        """A run ends well with the losses of one that our own launcher starts."""
        self.config("reference")
        self.train("reference", RANKS)
        reference = losses(self.directory / "reference")
        self.assertEqual(len(reference), 8)
        self.configure(run)
        for outcome in [self.finish(process) for process in self.start_ranks(run)]:
            self.assertEqual(outcome.status, 0, str(outcome))
        self.assertEqual(losses(self.directory / run), reference)

    def check_devices(self, run):
        """Where a GPU can be used by a process but by none that it forks, workers use it: the run then fails of a device
        that is not there, and never trains on the CPU instead."""
        if not CUDA_FORK_RULE:
            self.skipTest("built without CUDA, whose compiler tools/bootstrap does not install")
        log = self.directory / "cuda.log"
        self.config(run, train__device="auto", elastic__enabled=True)
        processes = self.start_ranks(run, LD_PRELOAD=CUDA_FORK_RULE, CUDA_FORK_LOG=log)
        outcomes = [self.finish(process) for process in processes]
        said = "\n".join(map(str, outcomes))
        self.assertTrue(any(outcome.status != 0 for outcome in outcomes), said)
        self.assertNotIn("CUDA was started in a process", said)
        logs = "\n".join(path.read_text() for path in (self.directory / run).glob("rank-*.log"))
        self.assertNotIn("computes on CPU", logs)
        self.assertEqual({line.split(" ", 1)[1] for line in log.read_text().splitlines()}, {"counted", "looked at"}, said)


class Sluice(Launchers):
    def start_ranks(self, run, **variables):
        return [self.start_train(run, RANKS, env=environment(**variables))]

    def test_a_calibration_file_changes_nothing(self):
        self.check("again")

    def test_supervisors_leave_the_device_alone(self):
        self.check_devices("gpu")


class ByHand(Launchers):
    """Ranks that are started one by one, each with what its launcher would say in its environment."""

    def start_ranks(self, run, **variables):
        return [self.start_train(run, 0, env=environment(**self.told(rank), **variables)) for rank in range(RANKS)]

    def test_slurm(self):
        port = free_port(20_000, 30_000)
        self.told = lambda rank: {
            "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NTASKS": RANKS, "SLURM_STEP_NUM_TASKS": RANKS,
            "SLURM_TASKS_PER_NODE": RANKS, "SLURM_NODELIST": "localhost", "SLURM_JOB_ID": port - 20_000}
        self.check("slurm")

    def test_open_mpi(self):
        port = free_port()
        self.told = lambda rank: {
            "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": RANKS, "OMPI_COMM_WORLD_LOCAL_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_SIZE": RANKS, "MASTER_PORT": port}
        self.check("openmpi")

    def test_two_hosts_of_mpich(self):
        port = free_port()
        self.told = lambda rank: {
            "PMI_RANK": rank, "PMI_SIZE": RANKS, "MPI_LOCALRANKID": rank % 2, "MPI_LOCALNRANKS": 2,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        self.check("mpich")


@unittest.skipUnless(MPIRUN, "mpirun is not there: tools/bootstrap --test installs it")
class Mpirun(Launchers):
    def start_ranks(self, run, **variables):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        passed_on = [word for name in variables for word in ("-x", name)]
        return [self.start([MPIRUN, *root, "--oversubscribe", *passed_on, "-n", str(RANKS), *self.train_command(run)],
                           environment(**variables), start_new_session=True)]

    def test_ranks_of_mpirun(self):
        self.check("mpirun")

    def test_supervisors_leave_the_device_alone(self):
        self.check_devices("gpu")

    def test_mpirun_that_is_told_to_stop_leaves_its_ranks_time_to_save(self):
        """Its own status says that the job was ended."""
        run = self.config("told", train__steps=100_000)
        [process] = self.start_ranks("told")
        self.wait_for_step(run, 2, process)
        process.send_signal(signal.SIGTERM)
        outcome = self.finish(process)
        self.assertEqual(committed_steps(run), [max(losses(run)) + 1], str(outcome))


@unittest.skipIf(local_slurm.missing(), local_slurm.missing())
class Slurm(Launchers):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.slurm = local_slurm.LocalSlurm()
        cls.addClassCleanup(cls.slurm.stop)

    def start_ranks(self, run, **variables):
        return [self.start(["srun", "--ntasks", str(RANKS), *self.train_command(run)],
                           environment(MASTER_ADDR="127.0.0.1", **variables) | self.slurm.environment)]

    def test_ranks_of_srun(self):
        self.check("srun")

    def test_supervisors_leave_the_device_alone(self):
        self.check_devices("gpu")


@unittest.skipIf(torchrun_missing(), torchrun_missing())
class Torchrun(Launchers):
    agents = [[f"--nproc-per-node={RANKS}"]]

    def start_ranks(self, run, **variables):
        port = f"--master-port={free_port()}"
        return [self.start([*TORCHRUN, "--no-python", *agent, port, *self.train_command(run)], environment(**variables))
                for agent in self.agents]

    def test_one_agent(self):
        self.check("torchrun")

    def test_supervisors_leave_the_device_alone(self):
        self.check_devices("gpu")

    def test_two_agents(self):
        self.agents = [["--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
                       for node in range(2)]
        self.check("agents")


if __name__ == "__main__":
    main()
