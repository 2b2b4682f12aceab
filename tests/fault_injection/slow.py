"""Ranks that are made slow for real: one of four is stopped a third of the time, held to a share of a processor, or sits
behind a slow link, and must be named with what is slow about it; and a run that nobody disturbs names nobody. On the
machine's own cores a throttled rank speeds the others up, so this shows that the parts work together; how well ranks are
told apart is measured in virtual time (`make bench-watching`).

    SLUICE=build/sluice python3 tests/fault_injection/slow.py [--minutes N]      the quiet run lasts so long; 2
"""

import argparse
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

import nodes  # noqa: E402
from harness import main, records, terminate  # noqa: E402
from watching_test import RANKS, Duty, WatchedRuns  # noqa: E402

OPTIONS = argparse.Namespace(minutes=2.0)
LINK_S = 0.015  # that a slow link holds each packet back


class Third(Duty):
    STOPPED_S, RUNNING_S = 0.03, 0.07


class Quota:
    """Holds a process and its threads to a part of one processor, by a control group of its own."""

    def __init__(self, process_id, part, period_us=50_000):
        root = next((path for path in (pathlib.Path("/sys/fs/cgroup/cpu"), pathlib.Path("/sys/fs/cgroup"))
                     if (path / "cpu.cfs_quota_us").exists() or (path / "cgroup.controllers").exists()), None)
        if root is None:
            raise PermissionError("no control groups here")
        self.group = root / f"sluice-trial-{os.getpid()}"
        self.root = root
        self.group.mkdir()
        quota = int(part * period_us)
        if (root / "cpu.cfs_quota_us").exists():
            (self.group / "cpu.cfs_period_us").write_text(str(period_us))
            (self.group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self.group / "cpu.max").write_text(f"{quota} {period_us}")
        (self.group / "cgroup.procs").write_text(str(process_id))

    def stop(self):
        if not self.group.exists():
            return
        for process in (self.group / "cgroup.procs").read_text().split():
            (self.root / "cgroup.procs").write_text(process)
        self.group.rmdir()


class Slow(WatchedRuns):
    # Long enough steps that the machine's own moods are a small part of them.
    SIZES = {"model__hidden": 128, "model__ffn_hidden": 256, "data__tokens_per_step": 2048}

    def named(self, duty_of, rank=2):
        """What is said of the rank once it is made slow."""
        run, process, duty = self.slow_run("run", rank, duty_of, **self.SIZES)
        self.wait_for("run", process, f"rank {rank} ")
        alarms = self.alarms_until(run, process, rank)
        duty.stop()
        terminate(process.pid)
        process.wait(60)
        return alarms

    def alarms_until(self, run, process, rank, timeout_s=120):
        """{(rank, metric)} of the run's alarms, once there is one of the rank."""
        deadline = time.monotonic() + timeout_s
        found = set()
        while time.monotonic() < deadline and process.poll() is None and rank not in {own for own, _ in found}:
            time.sleep(0.2)
            found = {(alarm["rank"], alarm["metric"]) for line in records(run) for alarm in line.get("alarms", [])}
        return found

    def test_a_worker_that_is_stopped_a_third_of_the_time(self):
        """Inside its cells, between them or in the middle of its messages: by whichever shows first."""
        self.assertIn(2, {rank for rank, _ in self.named(Third)})

    def test_a_worker_that_is_held_to_a_share_of_a_processor(self):
        def quota(process_id):
            try:
                return Quota(process_id, 0.2)
            except OSError as error:
                self.skipTest(f"control groups: {error}")
        self.assertIn((2, "slowdown"), self.named(quota))

    def test_a_node_behind_a_slow_link(self):
        try:
            network = nodes.Nodes(RANKS)
        except nodes.Unavailable as error:
            self.skipTest(str(error))
        self.addCleanup(network.close)
        run = self.configure("run", **self.SIZES)
        ranks = [self.start_rank_on(network, rank) for rank in range(RANKS)]
        self.wait_for_step(run, 45, ranks[0])
        network.fate = lambda source, target, packet, _chance: [(LINK_S if 2 in (source, target) else 0.0, packet)]
        alarms = self.alarms_until(run, ranks[0], 2)
        network.fate = nodes.pass_at_once
        for process in ranks:
            terminate(process.pid)
        for process in ranks:
            process.wait(60)
        self.assertIn((2, "link"), alarms)

    def start_rank_on(self, network, rank):
        command = [*network.prefix(rank), *self.train_command("run")]
        variables = {"RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1,
                     "MASTER_ADDR": network.address(0), "MASTER_PORT": 15_000}
        with open(self.directory / f"rank-{rank}.out", "w") as log:
            return self.start(command, {**os.environ, **{key: str(value) for key, value in variables.items()}}, stderr=log)

    def test_nobody_is_named_where_nothing_is_done(self):
        run = self.configure("run", **self.SIZES)
        process = self.start_train("run", RANKS)
        self.wait_for_step(run, 10, process)
        time.sleep(60 * OPTIONS.minutes)
        terminate(process.pid)
        self.finish(process)
        lines = records(run)
        alarms = [alarm for line in lines for alarm in line.get("alarms", [])]
        self.assertEqual(alarms[:3], [], f"in {len(lines)} steps")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--minutes", type=float, default=OPTIONS.minutes)
    OPTIONS, rest = arguments.parse_known_args(namespace=OPTIONS)
    main(rest)
