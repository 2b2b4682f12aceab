"""A whole release, each part installed in a clean environment and used: `make release` runs this on dist/ (DIST).

Libtorch comes from PyPI, without the libraries of GPU runs: half a gigabyte. The container recipe is not built here, where there is no
Docker; `tools/bare_machine` executes such steps as root.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

import installed

DIST = pathlib.Path(os.environ.get("DIST", installed.ROOT / "dist"))


def only(pattern):
    found = sorted(DIST.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{DIST} has {len(found)} files {pattern}, not one: make release")
    return found[0]


def try_programs(folder):
    known = installed.programs_wheel.pins()
    libtorch = [f"{name}=={known[name]}" for name in ("torch", "nvidia-cuda-runtime", "nvidia-cuda-cupti")]
    python = installed.planner_wheel.environment(folder / "environment", "--no-deps", *libtorch, str(only("sluice_train-*.whl")))
    subprocess.run([python, "-m", "pip", "install", "--quiet", "tokenizers", "jinja2"], check=True)
    print(installed.Installed(python, folder / "work").first_run())


def try_planner(folder):
    python = installed.planner_wheel.environment(folder / "environment", str(only("sluice-*.whl")))
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for test in sorted((installed.ROOT / "tests/python").glob("*_test.py")):
        subprocess.run([python, test], check=True, env=variables)


def try_source(_):
    # In the same folder in every run: assertions have their paths in them, so a compiler cache finds nothing elsewhere.
    folder = installed.ROOT / "build/release_source"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(only("sluice-*-source.tar.gz")) as tar:
        tar.extractall(folder)
    source, = folder.glob("sluice-*")
    subprocess.run(["cmake", "--preset", "release", "-DSLUICE_TORCH=OFF", "-DSLUICE_PYTHON=OFF"], cwd=source, check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "build", "--target", "sluice"], cwd=source, check=True, stdout=subprocess.DEVNULL)
    told = installed.programs_wheel.output(source / "build/sluice", "--version").strip()
    if told != f"sluice {installed.programs_wheel.version()}":
        sys.exit(f"the source archive's program says {told}")


def main():
    for part in (try_programs, try_planner, try_source):
        if len(sys.argv) < 2 or part.__name__ == f"try_{sys.argv[1]}":
            print(f"release: {part.__name__.replace('_', ' ')}", flush=True)
            with tempfile.TemporaryDirectory() as name:
                part(pathlib.Path(name))


if __name__ == "__main__":
    main()
