"""A rank that is slow in the middle of a run: it is named, with its kind; where the run is told to, plans give it less
work or it leaves, and either way losses are those of a run that nothing disturbed. A worker is made slow by stopping and
continuing it many times a second, for as long as the test asks.
"""

import os
import signal
import threading
import time

from harness import RUN_TIMEOUT_S, LineCount, TestCase, children, main, rank_processes, records, terminate, wait_until

RANKS = 4
ENDLESS = 100_000
COMPARED = 150  # steps
QUIET = 45      # steps before a rank is slow: more than those that say what it is like


class Duty:
    """Stops a process most of the time while it lives."""

    STOPPED_S, RUNNING_S = 0.03, 0.01

    def __init__(self, process_id):
        self.process_id = process_id
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.over.is_set():
                os.kill(self.process_id, signal.SIGSTOP)
                time.sleep(self.STOPPED_S)
                os.kill(self.process_id, signal.SIGCONT)
                time.sleep(self.RUNNING_S)
        except ProcessLookupError:
            pass

    def stop(self):
        self.over.set()
        self.thread.join()


class WatchedRuns(TestCase):
    def configure(self, run, **changes):
        return self.config(run, **{"train__steps": ENDLESS, "train__dtype": "float64", "train__eval_every": 0,
                                   "optimizer__decay": "constant", "parallel__strategies": ["4x<1,1,1>", "2x<1,1,2>"],
                                   "parallel__select": "best", **changes})

    def slow_run(self, name, rank, duty_of=Duty, **changes):
        """A run whose `rank` is slow from step QUIET on, by what duty_of(process id) does; (directory, process, duty)."""
        run = self.configure(name, **changes)
        with open(self.log(name), "w") as log:
            process = self.start_train(name, RANKS, stderr=log)
        self.wait_for_step(run, QUIET, process)
        worker = children(rank_processes(process.pid)[rank])[0]
        duty = duty_of(worker)
        self.addCleanup(duty.stop)
        return run, process, duty

    def log(self, name):
        return self.directory / f"{name}.log"

    def wait_for(self, name, process, words):
        there = lambda: words in self.log(name).read_text() or process.poll() is not None
        self.assertTrue(wait_until(there, RUN_TIMEOUT_S, pause_s=0.05), f"never said: {words}\n{self.log(name).read_text()[-3000:]}")
        self.assertIn(words, self.log(name).read_text())

    def end_run(self, name, process, run):
        """Stops the run once it has all steps that are compared, and some of its second epoch; its records."""
        steps = LineCount(run / "metrics.jsonl")

        def far_enough():
            there = steps.now() > COMPARED and '"restarts":1' in (run / "metrics.jsonl").read_text()
            return there or process.poll() is not None
        self.assertTrue(wait_until(far_enough, RUN_TIMEOUT_S, 0.05))
        terminate(process.pid)
        self.assertEqual(process.wait(RUN_TIMEOUT_S), 0, self.log(name).read_text()[-3000:])
        return records(run)

    @staticmethod
    def steps_of(run):
        return (run / "metrics.jsonl").read_text().count("\n")

    def undisturbed(self):
        whole = self.configure("whole", train__steps=COMPARED)
        self.train("whole", RANKS)
        return whole

    def assert_undisturbed(self, run):
        self.assert_close_losses(run, self.kept(self.undisturbed), 1e-11, 1e-9, goes_on=True)


class Watching(WatchedRuns):
    def test_it_is_named_and_plans_give_it_less(self):
        """A worker is killed while they do: the next epoch begins with ranks that are alike."""
        run, process, duty = self.slow_run("run", 2, watch__on_slow="plan")
        self.wait_for("run", process, "on plans count with rank 2 takes")
        self.wait_for("run", process, "rank 2 is slow")
        self.wait_for_step(run, self.steps_of(run) + 12, process)
        duty.stop()
        os.kill(children(rank_processes(process.pid)[0])[0], signal.SIGKILL)
        self.wait_for("run", process, "membership 1 of 4 ranks")
        lines = self.end_run("run", process, run)
        alarms = {(alarm["rank"], alarm["metric"]) for line in lines for alarm in line.get("alarms", [])}
        self.assertIn((2, "slowdown"), alarms)
        self.assertTrue(any(line.get("critical_path") for line in lines), "no critical path was looked at")
        self.assert_undisturbed(run)

    def test_it_leaves_where_fewer_are_faster(self):
        run, process, duty = self.slow_run("run", 1, watch__on_slow="leave")
        self.wait_for("run", process, "on 3 ranks: it leaves")
        self.wait_for("run", process, "membership 1 of 3 ranks (4 before)")
        duty.stop()
        lines = self.end_run("run", process, run)
        self.assertIn("this rank leaves the run", self.log("run").read_text() + self.logs_of_ranks(run))
        self.assertEqual({line["restarts"]: line["ranks"] for line in lines if "loss" in line}, {0: 4, 1: 3})
        self.assert_undisturbed(run)

    @staticmethod
    def logs_of_ranks(run):
        return "".join(path.read_text() for path in run.glob("rank-*.log"))


if __name__ == "__main__":
    main()
