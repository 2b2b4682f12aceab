"""Strikes elastic runs again and again: workers and whole ranks are killed, frozen and cut off, links are half open, new
ranks join, by chance, until so many faults have struck. Each run has its ranks on nodes of their own (nodes.py), started by
hand. However it goes: no step is lost or stands twice in metrics.jsonl, the losses are those of a run that nothing
disturbed, and no two epochs of one number ever begin, whoever was cut off from whom.

memberships.py --faults N | --each [--seed S] [--keep FOLDER]; $SLUICE names the program. Needs root, as nodes.py. Exit status: 0 all
held, 1 something broke, 77 this machine does not let us make nodes.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

import nodes
from harness import (EXIT_SKIPPED, base_settings, children, losses, make_documents, merged, records, to_toml, wait_until,
                     write_corpus)
from job import PROGRAM, Broken, Job, end_all

RANKS = 4
NODES = RANKS + 1  # the last one for a spare
FAULTS_A_RUN = 10
PORT = 15_000
RECOVERY_S = 150  # only a run that is stuck must be told from a slow one
UNDISTURBED_STEPS = 400  # as far as losses are compared
TOLERANCE = 1e-11
BEGINS = re.compile(r"membership (\d+) of \d+ ranks is ([0-9a-f]{16})")


def settings(**changes):
    """Steps that are cheap, with rates that don't depend on how many there will be."""
    common = {"elastic.enabled": True, "elastic.snapshot_every": 2, "train.dtype": "float64", "train.steps": 1_000_000,
              "train.stall_s": 20, "optimizer.decay": "constant", "optimizer.lr": 1e-3, "checkpoint.every": 40,
              "parallel.strategies": [], "parallel.select": "best", "log.dir": "run"}
    return merged(base_settings(), common | changes)


class Run:
    """One run, and what is done to it."""

    def __init__(self, folder, seed, network):
        self.folder, self.network, self.chance = folder, network, random.Random(seed)
        self.path = folder / "run"
        self.job = Job(folder, f"epochs-{os.getpid()}-{seed}")
        self.ranks = {}   # node: the supervisor's process
        self.ghosts = []  # of supervisors that the others go on without: they end by themselves
        self.names = 0
        self.struck = collections.Counter()

    def start(self):
        for node in range(RANKS):
            self.ranks[node] = self.job.start_rank("run", node, PORT, ranks=RANKS, local=(0, 1), prefix=self.network.prefix(node),
                                                   address=self.network.address(0))
        self.advance(2)

    def last(self):
        """(step, epoch) of the newest line."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            line = records(self.path)[-1]
            return line["step"], line["restarts"]
        return -1, -1

    def advance(self, steps, why="it began", epoch=0):
        """Waits for so many steps more than there are, in this epoch or a later one."""
        goal = self.last()[0] + steps

        def reached():
            step, now = self.last()
            return step >= goal and now >= epoch
        if not wait_until(reached, RECOVERY_S, 0.05):
            raise Broken(f"no step since {why} ({RECOVERY_S} s): {self.last()}, {self.job.stacks()}")

    # Faults. Each waits until the run has got over it.

    def victims(self, count=1):
        return self.chance.sample(sorted(self.ranks), count)

    def signal_workers(self, count, number):
        for node in self.victims(count):
            for worker in children(self.ranks[node].pid)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, number)

    def join(self, node):
        """A new rank on a node, waited for until it trains."""
        self.names += 1
        before = self.last()[1]
        self.ranks[node] = self.job.start(f"join{self.names}", [PROGRAM, "train", "--config", "run.toml", "--join"],
                                          prefix=self.network.prefix(node))
        self.advance(1, "a rank joined", before + 1)

    def replace(self, *gone):
        for node in gone:
            time.sleep(self.chance.uniform(0, 0.5))
            self.join(node)

    def kill_worker(self):
        self.signal_workers(1, signal.SIGKILL)
        self.advance(3, "a worker was killed")

    def kill_two_workers(self):
        self.signal_workers(2, signal.SIGKILL)
        self.advance(3, "two workers were killed")

    def kill_again(self):
        for _ in range(3):
            self.signal_workers(1, signal.SIGKILL)
            time.sleep(self.chance.uniform(0, 1))
        self.advance(3, "a worker was killed three times")

    def freeze_worker(self):
        self.signal_workers(1, signal.SIGSTOP)
        self.advance(3, "a worker was stopped", self.last()[1] + 1)

    def kill_rank(self):
        node, = self.victims()
        self.ranks.pop(node).kill()
        self.advance(2, "a rank was killed")
        self.replace(node)

    def kill_rank_and_worker(self):
        node, = self.victims()
        self.ranks.pop(node).kill()
        self.signal_workers(1, signal.SIGKILL)
        self.advance(2, "a rank and another's worker were killed")
        self.replace(node)

    def freeze_rank(self):
        node, = self.victims()
        process = self.ranks.pop(node)
        frozen = [process.pid, *children(process.pid)]
        for each in frozen:
            os.kill(each, signal.SIGSTOP)
        self.advance(2, "a rank was frozen", self.last()[1] + 1)
        for each in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)
        self.ghosts.append(process)
        self.replace(node)

    def cut_node_off(self):
        node, = self.victims()
        process = self.ranks.pop(node)
        self.network.fate = nodes.cut_off({node})
        self.advance(2, "a node was cut off", self.last()[1] + 1)
        self.network.fate = nodes.pass_at_once
        self.ghosts.append(process)
        self.replace(node)

    def blip(self):
        self.network.fate = nodes.cut_off(set(self.victims()))
        time.sleep(self.chance.uniform(0.1, 4))
        self.network.fate = nodes.pass_at_once
        self.advance(2, "a node was cut off for a moment")

    def half_open(self):
        self.network.fate = nodes.one_way(*self.victims(2))
        time.sleep(self.chance.uniform(0.1, 4))
        self.network.fate = nodes.pass_at_once
        self.advance(2, "a link was half open for a moment")

    def kill_while_cut_off(self):
        """A worker dies while its supervisor hears nobody: it must not go on, nor the others wait for it for ever."""
        node, = self.victims()
        self.network.fate = nodes.cut_off({node})
        for worker in children(self.ranks[node].pid)[:1]:
            os.kill(worker, signal.SIGKILL)
        self.ghosts.append(self.ranks.pop(node))
        self.advance(2, "a node was cut off and its worker killed", self.last()[1] + 1)
        self.network.fate = nodes.pass_at_once
        self.replace(node)

    def spare_joins(self):
        spare = RANKS
        if spare in self.ranks:
            self.ranks.pop(spare).kill()
            self.advance(2, "the spare was killed")
        else:
            self.join(spare)

    FAULTS = ((kill_worker, 8), (kill_two_workers, 3), (kill_again, 3), (kill_rank, 5), (kill_rank_and_worker, 2),
              (spare_joins, 4), (blip, 3), (half_open, 2), (cut_node_off, 1), (freeze_worker, 1), (freeze_rank, 1),
              (kill_while_cut_off, 1))

    def draw(self):
        fault, = self.chance.choices([fault for fault, _ in self.FAULTS], [weight for _, weight in self.FAULTS])
        return fault

    def strike(self, fault):
        time.sleep(self.chance.uniform(0, 1))
        print(f"  {fault.__name__}, at {self.last()}", flush=True)
        fault(self)
        self.struck[fault.__name__] += 1

    def end(self):
        """Stops it as a user does, and waits for everybody."""
        left = [process for process in self.ranks.values() if process.poll() is None]
        left[0].send_signal(signal.SIGTERM)
        self.job.wait(RECOVERY_S)
        wrong = [(node, process.returncode) for node, process in self.ranks.items() if process.returncode != 0]
        if wrong:
            raise Broken(f"ended with (node, status) {wrong}: {'; '.join(map(str, self.job.endings().values()))}")
        if any(process.returncode == 0 for process in self.ghosts):
            raise Broken("a rank that the others went on without ended as if it had trained")

    def check(self, undisturbed):
        found = losses(self.path)  # a step that stands twice is an error
        if sorted(found) != list(range(len(found))):
            raise Broken(f"steps are missing: {sorted(set(range(max(found))) - set(found))}")
        expected = undisturbed.first(len(found))
        for step in sorted(found.keys() & expected.keys()):
            if abs(found[step][0] - expected[step][0]) > TOLERANCE * abs(expected[step][0]):
                raise Broken(f"step {step} has loss {found[step][0]!r}, undisturbed {expected[step][0]!r}")
        begun = collections.defaultdict(set)
        for log in self.path.glob("rank-*.log"):
            for number, epoch in BEGINS.findall(log.read_text(errors="replace")):
                begun[int(number)].add(epoch)
        split = {number: epochs for number, epochs in begun.items() if len(epochs) > 1}
        if split:
            raise Broken(f"two epochs of one number began: {split}")
        return len(found), max(begun)


class Undisturbed:
    """The same run when nothing happens to it, trained as far as others came."""

    def __init__(self, folder):
        self.folder, self.losses = folder, {}

    def first(self, steps):
        """{step: (loss, norm)} of at least so many steps, or of UNDISTURBED_STEPS."""
        steps = min(steps, UNDISTURBED_STEPS)
        if len(self.losses) < steps:
            # A second run that came further is followed by others.
            self.losses = self.train(UNDISTURBED_STEPS if self.losses else steps)
        return self.losses

    def train(self, steps):
        name = f"whole-{steps}"
        (self.folder / f"{name}.toml").write_text(to_toml(settings(**{"log.dir": name, "train.steps": steps})))
        job = Job(self.folder, f"epochs-{os.getpid()}-{name}")
        job.start_locally(name, ranks=RANKS)
        ending = job.wait()["launcher"]
        if ending.status != 0:
            raise Broken(f"the undisturbed run failed: {ending.output[-2000:]}")
        return losses(self.folder / name)


def try_one(folder, seed, faults, undisturbed):
    """A run with these faults, None one by chance; (steps, epochs, what struck)."""
    network = nodes.Nodes(NODES, seed)
    run = Run(folder, seed, network)
    try:
        run.start()
        for fault in faults:
            run.strike(fault or run.draw())
        run.end()
        return *run.check(undisturbed), run.struck
    finally:
        end_all(run.job.token)
        network.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--each", action="store_true", help="each fault once, in order, in place of faults by chance")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SLUICE_SEED", 1)))
    parser.add_argument("--keep", type=pathlib.Path, help="keep the folders of what broke here")
    options = parser.parse_args()
    struck, steps, epochs, broken = collections.Counter(), 0, 0, []
    with tempfile.TemporaryDirectory(prefix="sluice-epochs-", ignore_cleanup_errors=True) as name:
        shared = pathlib.Path(name)
        write_corpus(shared / "corpus", make_documents())
        (shared / "tmp").mkdir()
        undisturbed = Undisturbed(shared)
        faults = [fault for fault, _ in Run.FAULTS] if options.each else [None] * options.faults
        for number in range(-(-len(faults) // FAULTS_A_RUN)):
            folder = shared / f"{number}"
            folder.mkdir()
            (folder / "tmp").mkdir()
            for suffix in ("bin", "idx"):
                shutil.copyfile(shared / f"corpus.{suffix}", folder / f"corpus.{suffix}")
            (folder / "run.toml").write_text(to_toml(settings()))
            seed = options.seed + number
            print(f"seed {seed}", flush=True)
            try:
                done, begun, what = try_one(folder, seed, faults[number * FAULTS_A_RUN:][:FAULTS_A_RUN], undisturbed)
                steps, epochs, struck = steps + done, epochs + begun, struck + what
            except nodes.Unavailable as reason:
                print(f"skipped: {reason}")
                return EXIT_SKIPPED
            except (Broken, AssertionError) as reason:
                broken.append(seed)
                print(f"  BROKEN: {reason}", flush=True)
                if options.keep:
                    shutil.copytree(folder, options.keep / f"epochs-{seed}", dirs_exist_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
    kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in struck.most_common())
    print(f"{struck.total()} faults held, {len(broken)} runs broke{f' (seeds {broken})' if broken else ''}: {steps} steps, "
          f"{epochs} epochs; {kinds}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
