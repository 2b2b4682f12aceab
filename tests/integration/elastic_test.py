"""Ranks that are killed while a run goes on: the run itself goes on, from the newest step that all ranks or their
buddies hold in memory, with the same batches; it ends with status 0, one line a step in metrics.jsonl, and the losses
of a run that nothing disturbed. Disturbed runs have no end of their own, so that no rank is fast enough to be done
before it is struck.

elastic_test.py [--kills N] [--seed S]: so many kills of random ranks at random moments, in one run.
"""

import argparse
import contextlib
import os
import pathlib
import random
import signal
import time

from harness import (HEADS, RUN_TIMEOUT_S, WAIT_ALL, TestCase, alive, children, committed_steps, losses, main, rank_processes,
                     records, stop_thread, terminate, wait_until, write_head_corpora)

RANKS = 4
STEPS = 20  # that are compared
ENDLESS = 100_000
OPTIONS = argparse.Namespace(kills=4, seed=1)


def epochs(run):
    """The epoch of each step of a run, in the order of its lines."""
    return [record["restarts"] for record in records(run) if "loss" in record]


def has_reached(run, epoch, step):
    """Whether the run, which goes on, has a line of `epoch` or a later one, and one of `step`."""
    try:
        return epoch <= max(epochs(run)) and max(losses(run)) >= step
    except (OSError, ValueError):  # it is being written
        return False


class Elastic(TestCase):
    def configure(self, run, **changes):
        return self.config(run, **{"train__steps": ENDLESS, "train__dtype": "float64", "elastic__enabled": True,
                                   "optimizer__decay": "constant", **changes})

    def whole(self, **changes):
        """A run that nothing disturbs."""
        return self.kept(self.train_whole, **changes)

    def train_whole(self, **changes):
        whole = self.configure("whole", **{"train__steps": STEPS, **changes})
        self.train("whole", RANKS)
        self.assertEqual(set(epochs(whole)), {0})
        return whole

    def start_to(self, run, step):
        process = self.start_train(run.name, RANKS)
        self.wait_for_step(run, step, process)
        return process

    def supervisors(self, process):
        """{rank: process id}: the launcher's children; each one's child is its worker."""
        self.assertTrue(wait_until(lambda: len(rank_processes(process.pid)) == RANKS, RUN_TIMEOUT_S))
        return rank_processes(process.pid)

    def worker(self, process, rank):
        """The process id of a rank's worker, once it has one; None when the run ends before."""
        found = []

        def begun():
            found[:] = children(rank_processes(process.pid).get(rank, 0))
            return found or process.poll() is not None

        self.assertTrue(wait_until(begun, RUN_TIMEOUT_S), f"rank {rank} has no worker")
        return found[0] if found else None

    def kill_worker(self, process, rank):
        os.kill(self.worker(process, rank), signal.SIGKILL)

    def kill(self, process, *ranks):
        """Supervisor and worker, as if their node were lost."""
        found = self.supervisors(process)
        for rank in ranks:
            os.kill(found[rank], signal.SIGKILL)

    def stop(self, process, run, epoch, step):
        """Stops a run that has reached this epoch and step, however long that takes."""
        self.assertTrue(wait_until(lambda: has_reached(run, epoch, step) or process.poll() is not None, RUN_TIMEOUT_S))
        terminate(process.pid)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 0, str(outcome))
        return outcome

    def assert_undisturbed(self, process, run, whole, epoch=1):
        """Stops the run once it has reached an epoch and all steps of the whole run, and compares their losses."""
        outcome = self.stop(process, run, epoch, STEPS)
        self.assert_close_losses(run, whole, 1e-11, 1e-9, goes_on=True)
        return outcome

    def test_a_killed_worker_costs_the_steps_since_the_last_snapshot(self):
        whole = self.whole()
        run = self.configure("run", elastic__snapshot_every=1)
        process = self.start_to(run, 5)
        self.kill_worker(process, 2)
        outcome = self.assert_undisturbed(process, run, whole)
        self.assertIn("membership 1 of 4 ranks (4 before) goes on after step", outcome.stderr)
        self.assertEqual(max(epochs(run)), 1)

    def test_a_run_with_a_head_loses_a_worker(self):
        """Labels of texts, and pairs of texts, whose losses a forward before the step decides."""
        write_head_corpora(self.directory)
        for head in HEADS:
            with self.subTest(head=head["head__kind"]):
                name = head["head__kind"]
                whole = self.whole(**head)
                run = self.configure(name, elastic__snapshot_every=1, **head)
                process = self.start_to(run, 4)
                self.kill_worker(process, 2)
                self.assert_undisturbed(process, run, whole)

    def test_moments_of_8_bits_are_restored_to_the_bit(self):
        changes = {"optimizer__name": "adamw_8bit", "model__hidden": 64, "model__ffn_hidden": 172}
        whole = self.whole(**changes)
        run = self.configure("run", elastic__snapshot_every=1, **changes)
        process = self.start_to(run, 3)
        self.kill(process, 1)
        self.assert_undisturbed(process, run, whole)

    def test_masters_in_bfloat16_are_restored_to_the_bit(self):
        changes = {"train__dtype": "bfloat16", "train__master_dtype": "bfloat16"}
        whole = self.whole(**changes)
        run = self.configure("run", elastic__snapshot_every=1, **changes)
        process = self.start_to(run, 3)
        self.kill(process, 1)
        self.assert_undisturbed(process, run, whole)

    def snapshot_bytes(self, process):
        """The largest memory that the supervisors keep for one snapshot."""
        files = [file for supervisor in self.supervisors(process).values() for file in pathlib.Path(f"/proc/{supervisor}/fd").iterdir()
                 if "memfd:sluice-snapshot" in os.readlink(file)]  # fmt: skip
        return max(os.stat(file).st_size for file in files)

    def test_frozen_parameters_are_in_no_snapshot_and_read_again(self):
        """Under LoRA, from what the run began with, and from a checkpoint of the run."""
        hidden, ffn, layers = 64, 172, 4
        changes = {"model__hidden": hidden, "model__ffn_hidden": ffn, "model__layers": layers, "lora__rank": 2,
                   "lora__targets": ["q_proj", "v_proj"]}
        frozen_bytes = 8 * layers * (3 * hidden * hidden + 3 * hidden * ffn)  # of float64; without embedding and head
        whole = self.whole(**changes)
        for every in (0, 3):
            with self.subTest(checkpoint_every=every):
                run = self.configure(f"run{every}", elastic__snapshot_every=1, checkpoint__every=every, **changes)
                process = self.start_to(run, 5)
                kept = self.snapshot_bytes(process)
                self.assertLess(kept, 2 * frozen_bytes // RANKS // 4, "a rank's slices and its buddy's have frozen parameters")
                self.kill(process, 1)
                outcome = self.assert_undisturbed(process, run, whole)
                self.assertNotIn("resuming from", outcome.stderr)

    def test_other_frozen_parameters_are_read_again(self):
        """A base in 8 bits under LoRA, which is coded again or read coded; and layers that are frozen as they are."""
        adapted = {"lora__rank": 2, "lora__targets": ["q_proj", "v_proj"], "model__base": "int8", "model__hidden": 64,
                   "model__ffn_hidden": 128, "train__dtype": "float32"}
        frozen = {"train__freeze": ["model.embed_tokens", "model.layers.[01]"]}
        for name, changes, tolerance in (("coded", adapted, 1e-5), ("frozen", frozen, 1e-11)):
            whole = self.whole(**changes)
            for every in (0, 3):
                with self.subTest(name, checkpoint_every=every):
                    run = self.configure(f"{name}{every}", elastic__snapshot_every=1, checkpoint__every=every, **changes)
                    process = self.start_to(run, 5)
                    self.kill(process, 2)
                    outcome = self.stop(process, run, 1, STEPS)
                    self.assert_close_losses(run, whole, tolerance, 100 * tolerance, goes_on=True)
                    self.assertNotIn("resuming from", outcome.stderr)

    def test_what_travels_in_fewer_bits_goes_on_near_a_whole_run(self):
        """No snapshot has what differences came to: it begins anew from the masters."""
        codecs = {"link__pull": "int4-difference", "link__push": ["int8", "int4"]}
        whole = self.whole(**codecs)
        run = self.configure("run", elastic__snapshot_every=1, **codecs)
        process = self.start_to(run, 5)
        self.kill_worker(process, 2)
        self.stop(process, run, 1, STEPS)
        self.assert_close_losses(run, whole, 2e-2, 0.5, goes_on=True)

    def test_the_first_rank_s_node_is_lost_and_another_joins(self):
        whole = self.whole()
        run = self.configure("run")
        process = self.start_to(run, 3)
        self.kill(process, 0)
        outcome = self.assert_undisturbed(process, run, whole)
        self.assertIn("rank 0 was killed by signal 9", outcome.stderr)
        # The one in its place may be there before the others have met without it.
        self.assertRegex(outcome.stderr, r"membership [12] of 4 ranks \([34] before\)")

    def test_with_both_buddies_lost_the_newest_checkpoint_is_taken_and_said_so(self):
        whole = self.whole()
        run = self.configure("run", checkpoint__every=4)
        process = self.start_to(run, 9)
        self.kill(process, 1, 2)
        outcome = self.assert_undisturbed(process, run, whole)
        self.assertIn("goes on from the newest checkpoint: no snapshot is whole", outcome.stderr)
        self.assertIn("resuming from", outcome.stderr)

    def change_memory(self, process, ranks):
        """Overwrites all that these ranks' supervisors keep, while their workers can't, and kills the workers."""
        workers = {rank: self.worker(process, rank) for rank in ranks}
        for worker in workers.values():
            os.kill(worker, signal.SIGSTOP)
        for rank in ranks:
            for file in pathlib.Path(f"/proc/{self.supervisors(process)[rank]}/fd").iterdir():
                if "memfd:sluice-snapshot" in os.readlink(file):
                    with open(file, "r+b") as memory:
                        memory.write(b"\xff" * os.fstat(memory.fileno()).st_size)
        for worker in workers.values():
            os.kill(worker, signal.SIGKILL)

    def test_slices_that_changed_in_memory_are_taken_from_the_buddys_copy(self):
        whole = self.whole()
        run = self.configure("run", elastic__snapshot_every=1)
        process = self.start_to(run, 5)
        self.change_memory(process, [1])
        outcome = self.assert_undisturbed(process, run, whole)
        self.assertRegex(outcome.stderr, r"\[rank 1\] the slices of rank 1 of membership 0 after step \d+ have changed in this "
                         "rank's memory, which is at fault; the other copy of them is taken")
        self.assertNotIn("resuming from", outcome.stderr)

    def test_slices_that_changed_wherever_they_were_are_the_newest_checkpoints(self):
        whole = self.whole()
        run = self.configure("run", elastic__snapshot_every=1, checkpoint__every=3)
        process = self.start_to(run, 5)
        self.change_memory(process, [1, 2])
        outcome = self.assert_undisturbed(process, run, whole)
        self.assertIn("some slices have changed in all memories that hold them: the newest checkpoint is taken",
                      outcome.stderr)
        self.assertIn("resuming from", outcome.stderr)

    def test_a_rank_that_gets_nowhere_ends_an_epoch_and_not_the_run(self):
        whole = self.whole()
        run = self.configure("run", elastic__snapshot_every=1, train__stall_s=10)
        process = self.start_to(run, 5)
        worker = self.worker(process, 2)
        if not stop_thread(worker):
            self.skipTest("the system lets nobody stop a thread")
        self.assertTrue(wait_until(lambda: not alive(worker), RUN_TIMEOUT_S))
        with contextlib.suppress(ChildProcessError):
            os.waitpid(worker, WAIT_ALL)  # who stopped it is the first to hear of its end
        outcome = self.assert_undisturbed(process, run, whole)
        self.assertRegex(outcome.stderr, r"no progress on rank \d: it ")
        self.assertEqual(max(epochs(run)), 1)

    def test_kills_at_random_moments_up_to_the_end(self):
        chance = random.Random(OPTIONS.seed)
        changes = {"train__steps": STEPS, "train__eval_every": 5, "data__validation_fraction": 0.05, "checkpoint__every": 6}
        whole = self.whole(**changes)
        run = self.configure("run", **changes)
        process = self.start_train("run", RANKS)
        for _ in range(OPTIONS.kills):
            time.sleep(chance.uniform(0.2, 4))
            worker = self.worker(process, chance.randrange(RANKS))
            if worker is None:
                break
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(worker, signal.SIGKILL)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 0, str(outcome))
        self.assertEqual(sorted(losses(run)), list(range(STEPS)), str(outcome))
        self.assert_close_losses(run, whole, 1e-11, 1e-9)

    def test_a_signal_still_stops_the_run(self):
        run = self.configure("run", checkpoint__every=ENDLESS)
        process = self.start_to(run, 3)
        self.kill_worker(process, 1)
        self.stop(process, run, epoch=1, step=0)

    def test_a_signal_right_behind_a_loss_saves_what_memory_holds(self):
        """A run that is preempted loses ranks and is told to stop, in whatever order: no sealed step is lost."""
        for strike, pause_s in ((self.kill_worker, 0.01), (self.kill_worker, 0.15), (self.kill, 0.5)):
            with self.subTest(strike=strike.__name__, pause_s=pause_s):
                run = self.configure(f"run{pause_s}", elastic__snapshot_every=1)
                process = self.start_to(run, 5)
                strike(process, 2)
                time.sleep(pause_s)
                outcome = self.stop(process, run, epoch=0, step=0)
                self.assertEqual(committed_steps(run), [max(losses(run)) + 1], str(outcome))
                self.assertGreaterEqual(max(losses(run)), 4, str(outcome))  # no more than the step that was under way

    def test_without_epochs_a_killed_rank_ends_the_run(self):
        run = self.configure("run", elastic__enabled=False)
        process = self.start_to(run, 2)
        self.kill(process, 1)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 1, str(outcome))
        self.assertIn("rank 1 was killed by signal 9", outcome.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=OPTIONS.kills)
    parser.add_argument("--seed", type=int, default=OPTIONS.seed)
    OPTIONS, rest = parser.parse_known_args()
    main(rest)
