"""A task of reasoning-gym learnt by its own score: the tour of docs/reinforcement.md in small."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SLUICE = os.environ.get("SLUICE", "build/sluice")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "examples" / "rl"))

import backward  # noqa: E402


class ReasoningTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)

    def done(self, *command):
        result = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, f"{' '.join(map(str, command))}\n{result.stderr[-2000:]}")

    def train(self, config, name, **settings):
        settings = {"data.validation": f'["{self.folder}/held_out/corpus"]', "log.dir": f'"{self.folder}/{name}"',
                    **{key.replace("__", "."): value for key, value in settings.items()}}
        self.done(SLUICE, "train", "--config", ROOT / "examples/rl" / config, "--nproc", 2,
                  *(part for key, value in settings.items() for part in ("--set", f"{key}={value}")))
        return [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]

    def test_a_score_takes_a_habit_away(self):
        self.assertEqual(backward.score("t h e", "e h t", "e h t"), 1)
        self.assertAlmostEqual(backward.score("t h e", "e h", "e h t"), 2 / 3)
        self.done(sys.executable, ROOT / "examples/rl/backward.py", self.folder)
        for part in ("lessons", "problems", "held_out"):
            self.done(SLUICE, "corpus", "build", self.folder / f"{part}.jsonl", "--chat", "--tokenizer",
                      self.folder / "tokenizer.json", "--out", self.folder / part)
        self.train("base.toml", "base", model__vocab=29, data__train=f'[["{self.folder}/lessons/corpus", 1.0]]')
        self.done(SLUICE, "export", self.folder / "base", "--out", self.folder / "model")
        lines = self.train("sorting.toml", "dapo", model__hf=f'"{self.folder}/model"',
                           data__train=f'[["{self.folder}/problems/corpus", 1.0]]', rl__python=f'"{sys.executable}"',
                           rl__reward='["python:examples/rl/backward.py:score"]')
        right = [line["accuracy"] for line in lines if "sampling_rounds" in line]
        first, last = sum(right[:3]) / 3, sum(right[-5:]) / 5
        print(f"sampled answers that are right: {first:.3f}, then {last:.3f}")
        self.assertGreater(last, first + 0.1)
        self.assertGreater([line["reward"] for line in lines if "validation_loss" in line][-1], 0.95)


if __name__ == "__main__":
    unittest.main()
