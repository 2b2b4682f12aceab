"""Models by their names on the Hugging Face hub: found in its cache, or fetched by Python's huggingface_hub."""

import os
import shutil
import subprocess
import sys
import unittest

from commands import HANG_S, SLUICE, CommandTest
from small_models import byte_tokenizer, chained_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"
END = 257  # <|im_end|>
# In place of the hub's package: it copies what is asked for out of $TEST_HUB.
PACKAGE = '''
import fnmatch, os, pathlib, shutil

def snapshot_download(name, revision=None, cache_dir=None, allow_patterns=None, ignore_patterns=None):
    source = pathlib.Path(os.environ["TEST_HUB"], name)
    if not source.is_dir():
        raise OSError(f"404: no model {name}\\nat {revision}")
    commit = revision or "fedcba9876543210fedcba9876543210fedcba98"
    target = pathlib.Path(cache_dir, "models--" + name.replace("/", "--"), "snapshots", commit)
    print("what packages print is no answer")
    for path in source.rglob("*"):
        relative = str(path.relative_to(source))
        if allow_patterns is not None and not any(fnmatch.fnmatch(relative, each) for each in allow_patterns):
            continue
        if not path.is_dir() and not any(fnmatch.fnmatch(relative, each) for each in ignore_patterns):
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / relative)
    return str(target)
'''


class ModelNames(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = byte_tokenizer(cls.folder / "model", configured={"eos_token": "<|im_end|>"})
        chained_model(cls.model, 258, {ord("a"): ord("b"), ord("b"): ord("c")}, END)
        cls.packages = cls.folder / "packages"
        cls.packages.mkdir()
        (cls.packages / "huggingface_hub.py").write_text(PACKAGE)
        cls.hub = cls.folder / "on the hub"

    def home(self, name, **models):
        """A cache of the hub's layout: ORGANISATION--NAME -> folder."""
        home = self.folder / name
        for folder, model in models.items():
            place = home / "hub" / f"models--{folder.replace('__', '--')}"
            (place / "refs").mkdir(parents=True)
            (place / "refs/main").write_text(COMMIT)
            shutil.copytree(model, place / "snapshots" / COMMIT)
        return home

    def call(self, home, *arguments, **variables):
        # A Python without the package, but for the one of this test.
        environment = {**os.environ, "HF_HOME": str(home), "PYTHONPATH": str(self.packages), "TEST_HUB": str(self.hub),
                       **variables}
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            if name not in variables:
                environment.pop(name, None)
        return subprocess.run([SLUICE, *map(str, arguments)], capture_output=True, text=True, env=environment,
                              timeout=HANG_S, cwd=self.folder)

    def test_a_model_in_the_cache_speaks(self):
        home = self.home("cached", my_org__small_v1=self.model)
        shutil.move(home / "hub/models--my_org--small_v1", home / "hub/models--my-org--Small.v1")
        for name in ("my-org/Small.v1", f"my-org/Small.v1@{COMMIT}", "my-org/Small.v1@main"):
            result = self.call(home, "generate", "--model", name, "--prompt", "a", HF_HUB_OFFLINE="1")
            self.assertEqual((result.returncode, result.stdout.strip()), (0, "abc"), result.stderr)

    def test_a_path_comes_before_a_name(self):
        (self.folder / "here").mkdir()
        shutil.copytree(self.model, self.folder / "here/model")
        result = self.call(self.folder / "no cache", "generate", "--model", "here/model", "--prompt", "a", HF_HUB_OFFLINE="1")
        self.assertEqual((result.returncode, result.stdout.strip()), (0, "abc"), result.stderr)

    def test_without_a_network_the_cache_and_the_way_out_are_named(self):
        for value in ("1", "true"):
            result = self.call(self.folder / "empty", "generate", "--model", "org/absent", "--prompt", "a", HF_HUB_OFFLINE=value)
            self.assertEqual(result.returncode, 2, result.stderr)
            for part in ("org/absent", str(self.folder / "empty/hub"), "HF_HUB_OFFLINE", "hf download org/absent"):
                self.assertIn(part, result.stderr)

    def test_the_hub_refuses(self):
        result = self.call(self.folder / "empty", "generate", "--model", "org/absent@v2", "--prompt", "a", "--python", sys.executable)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("OSError: 404: no model org/absent at v2", result.stderr)
        self.assertNotIn("Traceback", result.stderr)

    def test_planning_fetches_the_configuration_alone(self):
        shutil.copytree(self.model, self.hub / "org/plan")
        (self.hub / "org/plan/pytorch_model.bin").write_bytes(b"unread")
        home = self.folder / "planned"
        lengths = self.folder / "lengths.txt"
        lengths.write_text("60\n100\n30\n" * 20)
        result = self.call(home, "plan", "--model", "org/plan", "--gpus", 2, "--lengths", lengths, "--tokens-per-step", 600,
                           "--context", 128, "--strategies", "2x<1,1,1>", "--calibration", "analytic",
                           SLUICE_PYTHON=sys.executable)
        self.assertEqual(result.returncode, 0, result.stderr)
        fetched = sorted(path.name for path in home.rglob("*") if path.is_file())
        self.assertEqual(fetched, ["config.json"])
        # What lacks is fetched where weights are wanted.
        result = self.call(home, "import", "org/plan", "--out", self.folder / "imported", SLUICE_PYTHON=sys.executable)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertFalse(list(home.rglob("*.bin")))

    def test_a_run_begins_with_a_model_of_the_hub_and_its_tokenizer(self):
        home = self.home("training", org__small=self.model)
        text = self.folder / "text.txt"
        text.write_text("\n\n".join(f"é is letter {i} of 😀" for i in range(60)))
        built = self.call(home, "corpus", "build", text, "--out", self.folder / "corpus", "--tokenizer", "org/small",
                          "--delimiter", "\\n\\n", HF_HUB_OFFLINE="1")
        self.assertEqual(built.returncode, 0, built.stderr)
        config = self.folder / "run.toml"
        config.write_text(f"""
model.hf = "org/small"
data.train = [["{self.folder}/corpus", 1.0]]
data.context_length = 64
data.tokens_per_step = 256
train.epochs = 0.5
train.threads = 1
parallel.strategies = ["<1,1,1>"]
parallel.calibration = "analytic"
memory.device_gib = 1.0
log.dir = "{self.folder}/run"
""")
        result = self.call(home, "train", "--config", config, "--nproc", 1, HF_HUB_OFFLINE="1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"train\.epochs is 0\.5: the run has \d+ steps")
        self.assertRegex(result.stderr, r"serve it  sluice serve --model \S+/run")
        lines = (self.folder / "run/metrics.jsonl").read_text().splitlines()
        self.assertTrue((self.folder / f"run/checkpoints/step-{len(lines)}").is_dir())
        self.assertIn(COMMIT, (self.folder / "run/config.toml").read_text())


if __name__ == "__main__":
    unittest.main()
