"""What a run is started in, and what becomes of it: signals that are inherited or come, control groups, little shared
memory, lines that nobody reads, files that somebody deletes.
"""

import html.parser
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import unittest

from harness import TestCase, committed_steps, environment, free_port, losses, main, wait_until

TWO = ["2x<1,1,1>"]


class Signals(TestCase):
    def started(self, run, ranks, dispositions, steps=100_000, **changes):
        """A run of a process that has these dispositions of signals."""
        def inherit():
            for number, disposition in dispositions.items():
                signal.signal(number, disposition)
        directory = self.config(run, **{"train__steps": steps, "parallel__strategies": [f"{ranks}x<1,1,1>"], **changes})
        return directory, self.start_train(run, ranks, preexec_fn=inherit, start_new_session=True)

    def saves_at(self, number, ranks):
        directory, process = self.started(f"told-{number}-{ranks}", ranks, {signal.SIGHUP: signal.SIG_DFL})
        self.wait_for_step(directory, 2, process)
        os.killpg(process.pid, number)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 0, str(outcome))
        self.assertEqual(committed_steps(directory), [max(losses(directory)) + 1], str(outcome))

    def test_a_lost_terminal_and_batch_systems_signals_save(self):
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            with self.subTest(signal=number.name):
                self.saves_at(number, 2)
        self.saves_at(signal.SIGHUP, 1)

    def test_under_nohup_a_run_goes_on(self):
        directory, process = self.started("nohup", 2, {signal.SIGHUP: signal.SIG_IGN}, steps=40)
        self.wait_for_step(directory, 2, process)
        os.killpg(process.pid, signal.SIGHUP)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 0, str(outcome))
        self.assertEqual(len(losses(directory)), 40)

    def test_whoever_ignores_his_children_may_start_a_run(self):
        for elastic in (True, False):
            with self.subTest(elastic=elastic):
                _, process = self.started(f"children-{elastic}", 2, {signal.SIGCHLD: signal.SIG_IGN}, steps=2,
                                          elastic__enabled=elastic)
                self.assertEqual(self.finish(process).status, 0)
        _, process = self.started("wrong", 2, {signal.SIGCHLD: signal.SIG_IGN}, data__train=[["nowhere", 1]])
        self.assertEqual(self.finish(process).status, 2)

    def test_a_blocked_signal_is_not_inherited(self):
        def block():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1})
        directory = self.config("blocked", train__steps=100_000, parallel__strategies=TWO)
        process = self.start_train("blocked", 2, preexec_fn=block)
        self.wait_for_step(directory, 1, process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process).status, 0)


class Readers(TestCase):
    def test_lines_that_nobody_reads_stop_no_run(self):
        """A pipe of one page, full from the first."""
        directory = self.config("unread", train__steps=60, parallel__strategies=TWO)
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.set_blocking(writing, False)
        while True:
            try:
                os.write(writing, b"x" * 4096)
            except BlockingIOError:
                break
        os.set_blocking(writing, True)
        process = self.start_train("unread", 2, stderr=writing)
        os.close(writing)
        self.assertEqual(process.wait(timeout=100), 0)
        self.assertEqual(len(losses(directory)), 60)

    def test_a_slow_reader_gets_all_lines(self):
        self.config("slow", train__steps=30, parallel__strategies=TWO)
        process = self.start_train("slow", 2)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 0)
        self.assertEqual(outcome.stderr.count("  loss "), 30, outcome.stderr[-2000:])


class Files(TestCase):
    def struck(self, run, strike):
        """A run that somebody strikes between two steps; its outcome and directory."""
        directory = self.config(run, train__steps=400, parallel__strategies=TWO, checkpoint__every=400)
        process = self.start_train(run, 2)
        self.wait_for_step(directory, 3, process)
        strike(directory)
        outcome = self.finish(process)
        self.assertEqual(outcome.status, 0, str(outcome))
        self.assertEqual(sorted(losses(directory)), list(range(400)))
        self.assertEqual(committed_steps(directory), [400])
        self.assertTrue((directory / "report.html").exists(), str(outcome))
        return outcome

    def test_deleted_metrics_are_written_anew(self):
        outcome = self.struck("metrics", lambda directory: (directory / "metrics.jsonl").unlink())
        self.assertIn("metrics.jsonl was deleted while the run went on", outcome.stderr)

    def test_a_deleted_run_directory_is_made_anew(self):
        outcome = self.struck("directory", lambda directory: shutil.rmtree(directory, ignore_errors=True))
        self.assertIn("metrics.jsonl was deleted while the run went on", outcome.stderr)


class Tags(html.parser.HTMLParser):
    """The tags and attributes of a page as a browser reads it."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


class Names(TestCase):
    HOSTILE = "<script>alert(1)<script>\"&'<img src=x onerror=alert(2)>"

    def test_markup_in_names_is_text_in_the_report(self):
        folder = self.directory / self.HOSTILE
        folder.mkdir()
        for suffix in ("bin", "idx"):
            (self.directory / f"corpus.{suffix}").rename(folder / f"corpus.{suffix}")
        self.config("named", parallel__strategies=TWO, log__dir=f"{self.HOSTILE}/{self.HOSTILE}", train__eval_every=4,
                    data__train=[[f"{self.HOSTILE}/corpus", 1.0]], data__validation=[f"{self.HOSTILE}/corpus"])
        self.train("named", 2)
        page = (folder / self.HOSTILE / "report.html").read_text()
        self.assertIn("&lt;script&gt;alert(1)", page)
        read = Tags(page)
        self.assertLessEqual(read.tags.count("script"), 1, "the page's own")
        self.assertNotIn("img", read.tags)
        self.assertFalse([name for name in read.attributes if name.startswith("on")])

    def test_without_a_home_it_is_the_users(self):
        """Services start programs so; what they start has one, too."""
        (self.directory / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
        (self.directory / "texts.jsonl").write_text('{"text": "a"}\n')
        python = self.directory / "python"
        python.write_text('#!/bin/sh\necho "$HOME" > home\nexit 1\n')
        python.chmod(0o755)
        for told in ({}, {"HOME": ""}):
            env = {name: value for name, value in environment().items() if name != "HOME"} | told
            build = [self.program(), "corpus", "build", "texts.jsonl", "--tokenizer", "tokenizer.json", "--out", "built", "--python", python]
            outcome = self.finish(self.start(build, env=env))
            self.assertNotEqual(outcome.status, 0)
            self.assertEqual((self.directory / "home").read_text().strip(), pwd.getpwuid(os.geteuid()).pw_dir, str(outcome))


def own_group():
    """(folder, file of the limit) of a new control group of memory; the reason why there is none as text."""
    lines = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    first = [line.split(":")[2] for line in lines if ":memory:" in line]
    folder = pathlib.Path(f"/sys/fs/cgroup/memory{first[0]}" if first else "/sys/fs/cgroup") / f"sluice-test-{os.getpid()}"
    limit = folder / ("memory.limit_in_bytes" if first else "memory.max")
    try:
        folder.mkdir()
        limit.write_text("max" if not first else "-1")
    except OSError as error:
        if folder.exists():
            folder.rmdir()
        return f"no control group of memory can be made: {error}"
    return folder, limit


class Memory(TestCase):
    LIMIT = 500 << 20

    def setUp(self):
        super().setUp()
        group = own_group()
        if isinstance(group, str):
            self.skipTest(group)
        self.folder, limit = group
        limit.write_text(str(self.LIMIT))
        self.addCleanup(lambda: wait_until(self.remove, 5, 0.1))

    def remove(self):
        try:
            self.folder.rmdir()
        except OSError:
            return False
        return True

    def inside(self, command):
        return self.start(command, preexec_fn=lambda: (self.folder / "cgroup.procs").write_text(str(os.getpid())))

    def test_doctor_and_plans_know_the_limit(self):
        outcome = self.finish(self.inside([self.program(), "doctor"]))
        self.assertRegex(outcome.stdout, r"available of 500\.\d+ MiB, the limit in /sys/fs/cgroup")
        # A step of one sequence of 16,384 tokens through eight layers keeps some GiB.
        self.config("big", model__layers=8, model__hidden=512, model__ffn_hidden=2048, data__context_length=16384,
                    data__tokens_per_step=16384, parallel__strategies=["<1,1,1>"], memory__device_gib=0,
                    memory__margin_gib="auto", memory__recompute="none", memory__offload=0.0)
        for words in (["--dry-run"], []):
            outcome = self.finish(self.inside([*self.train_command("big", 1), *words]))
            self.assertEqual(outcome.status, 3, str(outcome))

    def test_a_rank_that_the_limit_kills_is_said_to_be(self):
        self.config("eaten", model__layers=8, model__hidden=1024, model__ffn_hidden=4096, model__vocab=32000,
                    parallel__strategies=TWO, memory__device_gib=64.0, elastic__enabled=False)
        outcome = self.finish(self.inside(self.train_command("eaten", 2)))
        self.assertEqual(outcome.status, 1, str(outcome))
        self.assertIn("the kernel ended it for want of memory", outcome.stderr)


def no_mounts():
    """Why nothing can be mounted for a test; empty where it can."""
    if shutil.which("unshare") is None:
        return "unshare is not there"
    made = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True, text=True, check=False)
    return "" if made.returncode == 0 else f"no file system can be mounted: {made.stderr.strip()[-100:]}"


@unittest.skipIf(no_mounts(), no_mounts())
class SharedMemory(TestCase):
    """Two ranks as torchrun starts them: their snapshots have names in /dev/shm."""

    MOUNTS = {
        "one mebibyte": "mount -t tmpfs -o size=1m tmpfs /dev/shm",
        "a page": "mount -t tmpfs -o size=4k tmpfs /dev/shm",
        "full": "mount -t tmpfs -o size=1m tmpfs /dev/shm; dd if=/dev/zero of=/dev/shm/another bs=4k 2>/dev/null || true",
        "read-only": "mount -t tmpfs -o ro,size=4k tmpfs /dev/shm",
    }

    def train_in(self, run, mount):
        self.config(run, parallel__strategies=TWO, elastic__snapshot_every=2, train__steps=6, model__hidden=128, model__ffn_hidden=512)
        port, script = free_port(), f"{mount}\npids=()\n"
        for rank in range(2):
            script += (f'env TORCHELASTIC_RUN_ID=r{port} RANK={rank} WORLD_SIZE=2 LOCAL_RANK={rank} LOCAL_WORLD_SIZE=2 '
                       f'MASTER_ADDR=127.0.0.1 MASTER_PORT={port} "$1" train --config {run}.toml 2>{run}.{rank}.log & pids+=($!)\n')
        script += 'for pid in "${pids[@]}"; do wait $pid; done'
        done = self.finish(self.start(["unshare", "-m", "bash", "-ec", script, "bash", self.program()], environment()))
        told = (self.directory / f"{run}.0.log").read_text()
        self.assertEqual(done.status, 0, f"{done}\n{told[-2000:]}")
        self.assertEqual(len(losses(self.directory / run)), 6)
        return told

    def test_little_shared_memory_is_named_and_done_without(self):
        for name, mount in self.MOUNTS.items():
            with self.subTest(mount=name):
                self.assertIn("/dev/shm", self.train_in(name.replace(" ", "-"), mount))

    def test_enough_is_not_spoken_of(self):
        self.assertNotIn("/dev/shm", self.train_in("enough", "mount -t tmpfs -o size=256m tmpfs /dev/shm"))


if __name__ == "__main__":
    main()
