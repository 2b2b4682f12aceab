"""`sluice profile` on real ranks: its file drives a run, and what is wrong is said once."""

import json
import os

from harness import SLUICE, TestCase, main

RANKS = 2


class Profile(TestCase):
    def profile(self, *arguments, status=0):
        command = [os.path.abspath(SLUICE), "profile", "--config", "run.toml", "--nproc", str(RANKS), *arguments]
        outcome = self.finish(self.start(command))
        self.assertEqual(outcome.status, status, str(outcome))
        return outcome

    def test_its_file_calibrates_a_run(self):
        self.config("run", parallel__strategies=["<2,1,1>", "2x<1,1,1>"], train__steps=2,
                    parallel__calibration="calibration.json")
        said = self.profile("--seconds", "0").stdout
        for words in ("tp 1", "tp 2", "backward-weight", "exchange inside a node", "calibration.json"):
            self.assertIn(words, said)
        self.train("run", RANKS)
        used = json.loads((self.directory / "run" / "calibration.json").read_text())
        found = json.loads((self.directory / "calibration.json").read_text())
        self.assertEqual(used["layers"], found["layers"])

    def test_json_is_the_file(self):
        self.config("run", parallel__strategies=["2x<1,1,1>"])
        said = self.profile("--seconds", "0", "--json", "--out", "found.json").stdout
        self.assertEqual(json.loads(said), json.loads((self.directory / "found.json").read_text()))

    def test_what_is_wrong_is_said_once(self):
        self.config("run", parallel__strategies=["3x<1,1,1>"])
        self.assertIn("3x<1,1,1>", self.profile(status=2).stderr)
        self.config("run", parallel__strategies=["2x<1,1,1>"])
        said = self.profile("--seconds", "0", "--out", "nowhere/found.json", status=2).stderr
        self.assertEqual(said.count("the folder nowhere is not there: make it"), 1, said)


if __name__ == "__main__":
    main()
