"""corpus build that is killed, and built again."""

import random
import signal
import subprocess
import time
import unittest

from commands import SLUICE, CommandTest


class KilledBuild(CommandTest):
    def files(self, folder):
        return {path.name: path.read_bytes() for path in (self.folder / folder).iterdir()}

    def command(self, folder):
        return ["corpus", "build", self.folder / "texts", "--out", self.folder / folder, "--train-tokenizer", "300"]

    def test_what_a_killed_build_leaves_goes_with_the_next(self):
        chance = random.Random(5)
        words = ["".join(chance.choices("abcdefghijkl", k=chance.randrange(2, 9))) for _ in range(2000)]
        (self.folder / "texts").mkdir()
        for number in range(30):
            (self.folder / "texts" / f"{number}.txt").write_text(" ".join(chance.choices(words, k=20_000)))
        self.done(*self.command("whole"))
        made = self.folder / "made"
        left = []
        for _ in range(20):
            build = subprocess.Popen([SLUICE, *map(str, self.command("made"))], stderr=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL)
            while build.poll() is None and not list(made.glob("*.part-*")):
                time.sleep(0.001)
            build.send_signal(signal.SIGKILL)
            build.wait()
            left = list(made.glob("*.part-*"))
            if left:
                break
        self.assertTrue(left, "no build was killed while it wrote")
        self.done(*self.command("made"))
        self.assertEqual(self.files("made"), self.files("whole"))


if __name__ == "__main__":
    unittest.main()
