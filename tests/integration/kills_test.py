"""kill -9 of a random rank at a random moment, half of them while a checkpoint is being written: the others
notice, name the rank and end; the run resumes, repeats no committed step, and ends with the losses and the
parameters, bit for bit, of a run that nothing disturbed.

kills_test.py [--kills N] [--seed S] [--record FILE]: FILE gets what was seen, as JSON.
"""

import argparse
import json
import os
import random
import signal
import time

from harness import RUN_TIMEOUT_S, TestCase, alive, committed_steps, losses, main, rank_processes, wait_until

RANKS = 4
STEPS = 40
OPTIONS = argparse.Namespace(kills=3, seed=1, record=None)


def being_written(run):
    """Whether a checkpoint of `run` is begun and not committed."""
    return any(not (step / "manifest.json").exists() for step in (run / "checkpoints").glob("step-*"))


class Kills(TestCase):
    elastic = False
    def setUp(self):
        super().setUp()
        self.chance = random.Random(OPTIONS.seed)

    def configure(self, run, behind=True):
        return self.config(run, train__steps=STEPS, checkpoint__every=1, checkpoint__async=behind)

    def wait_for_moment(self, run, process, saving):
        """Waits for a random moment of the run, or one while it saves; False if the run ended before."""
        if saving:
            begin = max(committed_steps(run), default=0)
            after = begin + self.chance.randrange(1, 6)
            wait_until(lambda: process.poll() is not None
                       or (max(committed_steps(run), default=0) >= after and being_written(run)),
                       RUN_TIMEOUT_S, pause_s=0.0002)
        elif self.chance.random() < 0.3:  # while the ranks start, most likely
            time.sleep(self.chance.uniform(0.05, 1.5))
        else:
            begin = max(committed_steps(run), default=0)
            wait_until(lambda: process.poll() is not None or max(committed_steps(run), default=0) > begin,
                       RUN_TIMEOUT_S)
            time.sleep(self.chance.uniform(0, 0.5))
        return process.poll() is None

    def kill_one(self, process):
        """Kills a random rank; (rank, survivors' process ids)."""
        self.assertTrue(wait_until(lambda: len(rank_processes(process.pid)) == RANKS or process.poll() is not None,
                                   RUN_TIMEOUT_S))
        ranks = rank_processes(process.pid)
        if len(ranks) < RANKS:
            return None, []
        rank = self.chance.randrange(RANKS)
        os.kill(ranks.pop(rank), signal.SIGKILL)
        return rank, list(ranks.values())

    def disturb(self, run, saving):
        """Starts or resumes the run and kills one rank; what was seen, or None if the run was through before."""
        process = self.start_train(run.name, RANKS, "--resume", "auto")
        if not self.wait_for_moment(run, process, saving):
            self.assertEqual(self.finish(process).status, 0)
            return None
        rank, survivors = self.kill_one(process)
        begin = time.monotonic()
        if rank is None:
            self.assertEqual(self.finish(process).status, 0)
            return None
        outcome = self.finish(process)
        seconds = time.monotonic() - begin
        self.assertEqual(outcome.status, 1, str(outcome))
        self.assertFalse([survivor for survivor in survivors if alive(survivor)])
        self.assertIn(f"rank {rank} was killed by signal 9", outcome.stderr)
        named = outcome.stderr.count(f"rank {rank} (process")
        if saving:  # otherwise it may have been killed before the ranks knew each other
            self.assertGreater(named, 0, str(outcome))
        return {"rank": rank, "saving": saving, "seconds": round(seconds, 3), "named_by_survivors": named}

    def test_kills(self):
        whole = self.configure("whole", behind=False)
        self.train("whole", RANKS)
        seen, runs = [], 0
        while len(seen) < OPTIONS.kills:
            run = self.configure(f"run{runs}", behind=runs % 2 == 0)
            runs += 1
            committed = 0
            while len(seen) < OPTIONS.kills:
                kill = self.disturb(run, saving=len(seen) % 2 == 1)
                now = max(committed_steps(run), default=0)
                self.assertGreaterEqual(now, committed, "a committed step was lost")
                committed = now
                if kill is None:
                    break
                kill["committed"] = committed
                seen.append(kill)
                print(f"kill {len(seen)}: {kill}", flush=True)
            resumed = self.train(run.name, RANKS, "--resume", "auto")
            self.assertEqual(losses(run), losses(whole), str(resumed))
            self.assert_same_checkpoint(run, whole, STEPS)
        if OPTIONS.record:
            record(seen)

    def test_the_launcher_s_ranks_die_with_it(self):
        run = self.config("run", train__steps=100_000)
        process = self.start_train("run", RANKS)
        self.wait_for_step(run, 2, process)
        ranks = rank_processes(process.pid).values()
        self.assertEqual(len(ranks), RANKS)
        process.kill()
        self.assertTrue(wait_until(lambda: not any(map(alive, ranks)), RUN_TIMEOUT_S))


def record(seen):
    with open(OPTIONS.record, "w", encoding="utf-8") as file:
        json.dump({"kills": len(seen), "while_saving": sum(kill["saving"] for kill in seen),
                   "named_by_survivors": sum(kill["named_by_survivors"] > 0 for kill in seen),
                   "longest_s": max(kill["seconds"] for kill in seen),
                   "each": seen}, file, indent=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=OPTIONS.kills)
    parser.add_argument("--seed", type=int, default=OPTIONS.seed)
    parser.add_argument("--record", help="a JSON file for what was seen")
    OPTIONS = parser.parse_args()
    main([])
