"""Checkpoints in a bucket, end to end: the store's own tests, and runs that mirror into it, lose their directory, go on
from it, and meet a server that fails. The server is moto, which checks every signature (bucket_server.py)."""

import os
import shutil
import subprocess
import unittest

from bucket import Bucket, losses
MIRROR = "s3://bucket/runs/a"


class Checkpoints(Bucket):
    def loss_of(self, model):
        said = self.program_output("eval", "--model", model, "--corpus", "corpus").splitlines()
        return next(line.split(": loss ")[1] for line in said if ": loss " in line)

    def steps_there(self, place):
        """The steps of the checkpoints in a bucket, as `inspect` shows them."""
        lines = self.program_output("inspect", place).splitlines()
        return [int(line.split(" after ")[1].split()[0]) for line in lines if line.startswith("  checkpoint after")]

    def test_the_store_keeps_its_contract(self):
        subprocess.run([os.environ["S3_STORE_TEST"], "--gtest_brief=1"], check=True)

    def test_the_store_keeps_its_contract_when_requests_fail(self):
        for kind in ("503", "drop"):
            self.faults(3, kind)
            subprocess.run([os.environ["S3_STORE_TEST"], "--gtest_brief=1", "--gtest_filter=-*Says*"], check=True)
            self.assertGreater(self.faults(0), 3)

    def test_a_run_goes_on_from_the_bucket_when_its_directory_is_lost(self):
        mirrored = {"checkpoint__mirror": MIRROR, "checkpoint__every": 2}
        whole = self.configure("whole")
        self.train("whole", 2)
        run = self.configure("a", train__steps=5, **mirrored)
        self.assertIn(f"mirrored checkpoint after 5 steps at {MIRROR}", self.train("a", 2).stderr)
        self.assertEqual(self.steps_there(MIRROR), [4, 5])
        shutil.rmtree(run)

        self.configure("a", **mirrored)
        self.assertIn("earlier run", self.train("a", 2, expect=2).stderr)
        self.train("a", 2, "--resume", "auto")
        expected = {step: values for step, values in losses(whole).items() if step >= 5}
        self.assertEqual(losses(run), expected)
        self.assertEqual(self.steps_there(MIRROR), [6, 8])

        # What reads checkpoints reads them there, with the same result.
        self.assertEqual(self.loss_of(f"{MIRROR}/step-8"), self.loss_of(str(run)))
        self.assertIn("all files are whole", self.program_output("inspect", f"{MIRROR}/step-8"))
        for model, source in (("there", MIRROR), ("here", str(run))):
            self.program_output("export", source, "--out", model)
        there, here = (self.directory / model / "model.safetensors" for model in ("there", "here"))
        self.assertEqual(there.read_bytes(), here.read_bytes())
        other = self.configure("other", train__steps=10)
        self.train("other", 4, "--resume", f"{MIRROR}/step-8", "--set", "parallel.strategies=['4x<1,1,1>']")
        self.assertEqual(sorted(losses(other)), [8, 9])

    def test_what_is_frozen_is_sent_once(self):
        place = "s3://other.bucket/frozen"
        run = self.configure("frozen", train__freeze=["*.mlp.*"], checkpoint__mirror=place, checkpoint__every=2,
                             train__steps=4)
        self.train("frozen", 2)
        shared = sorted(path.name for path in (run / "checkpoints" / "shared").iterdir())
        self.assertEqual(len(shared), 2)
        for step in (2, 4):
            shown = self.program_output("inspect", f"{place}/step-{step}")
            self.assertEqual(sorted(line.split("/")[1].split(":")[0] for line in shown.splitlines() if "shared/" in line),
                             shared)
        shutil.rmtree(run)
        self.configure("frozen", train__freeze=["*.mlp.*"], checkpoint__mirror=place, train__steps=6)
        self.train("frozen", 2, "--resume", "auto")
        self.assertEqual(sorted(losses(run)), [4, 5])

    def test_a_server_that_fails_now_and_then_costs_nothing(self):
        place = "s3://bucket/failing"
        self.configure("failing", checkpoint__mirror=place, checkpoint__every=2, checkpoint__async=True)
        self.faults(3)
        stderr = self.train("failing", 2).stderr
        self.assertGreater(self.faults(0), 3)
        self.assertNotIn("the mirror lacks", stderr)
        self.assertEqual(self.steps_there(place)[-1], 8)

    def test_a_mirror_whose_connections_break_or_stall_is_whole(self):
        for kind in ("drop", "slow"):
            with self.subTest(kind):
                place = f"s3://bucket/{kind}"
                run = self.configure(kind, checkpoint__mirror=place, checkpoint__every=2, checkpoint__async=True)
                self.faults(2, kind, "PUT")
                stderr = self.train(kind, 2).stderr
                self.assertGreater(self.faults(0), 1)
                self.assertNotIn("the mirror lacks", stderr)
                newest = self.steps_there(place)[-1]
                self.assertEqual(newest, 8)
                self.assertIn("all files are whole", self.program_output("inspect", f"{place}/step-{newest}"))
                self.assertEqual(self.loss_of(f"{place}/step-{newest}"), self.loss_of(str(run)))

    def test_a_slice_that_was_changed_in_the_mirror_is_passed_over(self):
        place = "s3://bucket/changed"
        run = self.configure("changed", checkpoint__mirror=place, checkpoint__every=2, train__steps=4)
        self.train("changed", 2)
        shutil.rmtree(run)
        self.configure("changed", checkpoint__mirror=place, checkpoint__every=2)
        self.faults(1, "change", "GET", "step-4/rank-0001.safetensors")
        stderr = self.train("changed", 2, "--resume", "auto").stderr
        self.faults(0)
        self.assertRegex(stderr, r"step-4.*rank-0001\.safetensors|rank-0001\.safetensors.*step-4")
        self.assertEqual(sorted(losses(run)), list(range(2, 8)))

    def test_a_run_does_without_a_server_that_is_gone_but_does_not_begin_anew(self):
        place = "s3://bucket/gone"
        once = dict(os.environ, AWS_MAX_ATTEMPTS="1")
        self.configure("gone", checkpoint__mirror=place, checkpoint__every=2, train__steps=4)
        self.faults(1)
        self.assertIn("s3://bucket", self.train("gone", 2, "--resume", "auto", expect=1, env=once).stderr)
        self.faults(0)
        self.train("gone", 2)
        self.configure("gone", checkpoint__mirror=place, checkpoint__every=2)
        self.faults(1)
        stderr = self.train("gone", 2, "--resume", "auto", env=once).stderr
        self.assertIn("are passed over", stderr)
        self.assertIn("the mirror lacks the checkpoint after 8 steps", stderr)
        self.faults(0)
        self.assertEqual(self.steps_there(place), [2, 4])

    def test_without_credentials_it_says_where_it_looked(self):
        self.configure("nobody", checkpoint__mirror=MIRROR)
        without = {name: value for name, value in os.environ.items() if not name.startswith("AWS_ACCESS")}
        without.pop("AWS_SECRET_ACCESS_KEY")
        self.assertIn("no credentials for s3://", self.train("nobody", 2, expect=2, env=without).stderr)


if __name__ == "__main__":
    unittest.main()
