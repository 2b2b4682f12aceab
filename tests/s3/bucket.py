"""What tests against a bucket share: the server, moto, which checks every signature (bucket_server.py), and its faults."""

import json
import os
import pathlib
import subprocess
import sys
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

from harness import TestCase, losses  # noqa: E402, F401

PYTHON = pathlib.Path(os.environ["SLUICE_DEPS"]) / "moto" / "bin" / "python"


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

    def faults(self, every, kind="503", method="", key=""):
        """Each Nth request fails from now on; how many have failed before."""
        rule = json.dumps({"every": every, "kind": kind, "method": method, "key": key}).encode()
        request = urllib.request.Request(self.access["AWS_ENDPOINT_URL"] + "/faults", data=rule, method="PUT")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return int(answer.read())

    def program_output(self, *arguments, status=0):
        outcome = self.finish(self.start([self.program(), *arguments]))
        self.assertEqual(outcome.status, status, str(outcome))
        return outcome.stdout + outcome.stderr

    def configure(self, run, **changes):
        """A run of two ranks whose learning rate does not know how long it is."""
        return self.config(run, **{"parallel.strategies": ["<2,1,1>", "2x<1,1,1>"], "optimizer.decay": "constant",
                                   **{name.replace("__", "."): value for name, value in changes.items()}})
