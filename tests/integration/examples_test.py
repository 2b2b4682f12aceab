"""The launch scripts of examples/operating stay true: their commands are run here, on two local ranks, in the place of
the paths, nodes and GPUs that they name. srun, scancel and scontrol are stand-ins that do what Slurm's do for one machine."""

import os
import pathlib
import re
import shlex
import signal
import stat

from harness import SLUICE, TestCase, committed_steps, environment, free_port, main

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "operating"
RANKS = 2

SRUN = """#!/bin/bash
# srun [--option...] COMMAND...: two tasks on this machine, the worst status.
while [[ $1 == --* ]]; do shift; done
ids=()
for rank in 0 1; do
  SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_TASKS_PER_NODE=2 \\
    SLURM_STEP_ID=0 SLURM_NODELIST=localhost "$@" &
  ids+=($!)
done
trap : TERM
echo "${ids[@]}" > tasks
worst=0
for id in "${ids[@]}"; do
  wait "$id"; status=$?
  while kill -0 "$id" 2>/dev/null; do wait "$id"; status=$?; done  # a signal ends a wait early
  ((status > worst)) && worst=$status
done
exit "$worst"
"""


class Examples(TestCase):
    def setUp(self):
        super().setUp()
        self.programs = self.directory / "bin"
        self.programs.mkdir()
        (self.programs / "sluice").symlink_to(os.path.abspath(SLUICE))

    def configure(self, **changes):
        return self.config("run", parallel__strategies=["2x<1,1,1>"], parallel__select="best", **changes)

    def program(self, name, script):
        path = self.programs / name
        path.write_text(script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def path_first(self, **variables):
        return environment(PATH=f"{self.programs}:{os.environ['PATH']}", **variables)

    def sbatch_script(self, **options):
        """Starts train.sbatch as Slurm would; what scontrol was asked for goes to `asked`."""
        self.program("srun", SRUN)
        self.program("scancel", "#!/bin/bash\n[[ $1 == --signal=TERM ]] && kill -TERM $(<tasks)\n")
        self.program("scontrol", "#!/bin/bash\necho \"$@\" >> asked\n")
        port = free_port()
        return self.start(["bash", str(EXAMPLES / "train.sbatch"), "run.toml"],
                          env=self.path_first(SLURM_JOB_ID=42, MASTER_PORT=port), **options)

    def test_slurm_script_trains_to_the_end(self):
        run = self.configure(train__steps=3, checkpoint__every=3)
        outcome = self.finish(self.sbatch_script())
        self.assertEqual(outcome.status, 0, str(outcome))
        self.assertEqual(committed_steps(run), [3])
        self.assertFalse((self.directory / "asked").exists())

    def test_slurm_script_saves_and_queues_again_when_signalled(self):
        run = self.configure(train__steps=100_000)
        script = self.sbatch_script()
        self.wait_for_step(run, 2, script)
        script.send_signal(signal.SIGUSR1)  # to the batch script alone, as --signal=B:USR1 does
        outcome = self.finish(script)
        self.assertEqual(outcome.status, 0, str(outcome))
        self.assertEqual(len(committed_steps(run)), 1)
        self.assertEqual((self.directory / "asked").read_text(), "requeue 42\n")

    def test_slurm_script_saves_and_ends_when_cancelled(self):
        run = self.configure(train__steps=100_000)
        script = self.sbatch_script(start_new_session=True)
        self.wait_for_step(run, 2, script)
        os.killpg(script.pid, signal.SIGTERM)
        outcome = self.finish(script)
        self.assertEqual(outcome.status, 0, str(outcome))
        self.assertEqual(len(committed_steps(run)), 1)
        self.assertFalse((self.directory / "asked").exists())

    def test_slurm_script_does_not_queue_again_what_failed(self):
        self.configure(train__steps=3, model__heads=5)
        outcome = self.finish(self.sbatch_script())
        self.assertNotEqual(outcome.status, 0)
        self.assertFalse((self.directory / "asked").exists())

    def test_systemd_unit_runs_and_stops(self):
        """Its command, stopped as systemd does: SIGTERM to every process of the unit."""
        run = self.configure(train__steps=100_000)
        unit = (EXAMPLES / "sluice-train@.service").read_text()
        command = shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE).group(1))
        self.assertEqual(command[0], "/usr/local/bin/sluice")
        command[0] = os.path.abspath(SLUICE)
        command[command.index("--nproc") + 1] = str(RANKS)
        process = self.start(command, start_new_session=True)
        self.wait_for_step(run, 2, process)
        os.killpg(process.pid, signal.SIGTERM)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 0, str(outcome))
        self.assertEqual(len(committed_steps(run)), 1)

    def test_kubernetes_manifest_starts_a_command_that_exists(self):
        """The words behind torchrun's own, with the environment that torchrun gives."""
        self.configure(train__steps=2)
        manifest = (EXAMPLES / "train.kubernetes.yaml").read_text()
        block = re.search(r"command:\n((?: +- .*\n)+)", manifest).group(1)
        self.start_as_torchrun_does([line.strip()[2:] for line in block.splitlines()])

    def test_skypilot_task_starts_a_command_that_exists(self):
        self.configure(train__steps=2)
        task = (EXAMPLES / "train.sky.yaml").read_text()
        script = re.search(r"^run: \|\n((?:  .*\n)+)", task, re.MULTILINE).group(1).replace("\\\n", " ")
        self.start_as_torchrun_does(shlex.split(re.search(r"exec (torchrun .*)", script).group(1)))

    def start_as_torchrun_does(self, words):
        self.assertEqual(words[0], "torchrun")
        command = words[words.index("sluice"):]
        command[0] = os.path.abspath(SLUICE)
        port = free_port()
        ranks = [self.start(command, env=environment(
            RANK=rank, WORLD_SIZE=RANKS, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=RANKS, MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port)) for rank in range(RANKS)]
        for rank in ranks:
            outcome = self.finish(rank)
            self.assertEqual(outcome.status, 0, str(outcome))


if __name__ == "__main__":
    main()
