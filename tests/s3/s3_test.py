"""Checkpoints in a bucket, end to end: the store's own tests, and runs that mirror into it, lose their directory, go on
from it, and meet a server that fails. The server is moto, which checks every signature (bucket_server.py)."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

from harness import TestCase, losses  # noqa: E402

PYTHON = pathlib.Path(os.environ["SLUICE_DEPS"]) / "moto" / "bin" / "python"
MIRROR = "s3://bucket/runs/a"


class Bucket(TestCase):
    @classmethod
    def setUpClass(cls):
        if not PYTHON.exists():
            raise AssertionError(f"{PYTHON} is missing: run tools/bootstrap")
        cls.server = subprocess.Popen([PYTHON, HERE / "bucket_server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True)
        cls.access = json.loads(cls.server.stdout.readline())
        # Nothing of this machine's own settings; and no proxy between this and the server.
        nowhere = {"AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_CONFIG_FILE": "/nowhere", "NO_PROXY": "127.0.0.1"}
        os.environ.update(cls.access | nowhere)

    @classmethod
    def tearDownClass(cls):
        cls.server.stdin.close()
        cls.server.wait(timeout=30)
        cls.server.stdout.close()

    def setUp(self):
        super().setUp()
        self.faults(0)

    def faults(self, every, kind="503", method=""):
        """Each Nth request fails from now on; how many have failed before."""
        rule = json.dumps({"every": every, "kind": kind, "method": method}).encode()
        request = urllib.request.Request(self.access["AWS_ENDPOINT_URL"] + "/faults", data=rule, method="PUT")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return int(answer.read())

    def program_output(self, *arguments, status=0):
        outcome = self.finish(self.start([self.program(), *arguments]))
        self.assertEqual(outcome.status, status, str(outcome))
        return outcome.stdout + outcome.stderr

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

    def configure(self, run, **changes):
        """A run of two ranks whose learning rate does not know how long it is."""
        return self.config(run, **{"parallel.strategies": ["<2,1,1>", "2x<1,1,1>"], "optimizer.decay": "constant",
                                   **{name.replace("__", "."): value for name, value in changes.items()}})

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
