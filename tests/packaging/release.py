"""A whole release, each part installed in a clean environment and used: `make release` runs this on dist/ (DIST).

Libtorch comes from PyPI, without the libraries of GPU runs: half a gigabyte. The container recipe is not built here, where there is no
Docker: that its files and its packages are there is checked. `tools/bare_machine` executes its steps as root.
"""

import importlib.machinery
import importlib.util
import os
import pathlib
import re
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
    require_readme(source)
    quiet = {"cwd": source, "check": True, "stdout": subprocess.DEVNULL}
    subprocess.run(["tools/bootstrap", "--check"], **quiet)
    subprocess.run(["make", "configure"], **quiet)  # what the README's `make train` begins with
    # One module and its tests: all others are compiled by the same rules, and for the wheels.
    subprocess.run(["cmake", "--build", "build", "--target", "base_test"], **quiet)
    subprocess.run(["build/base_test", "--gtest_brief=1"], **quiet)


def require_readme(source):
    """Every file of the repository that the README links to or hands to a command is in the archive."""
    text = (source / "README.md").read_text()
    named = {*re.findall(r"\]\(([\w./-]+)", text), *re.findall(r"\b(?:examples|tools|bench|docs)/[\w./-]+\w", text)}
    if missing := sorted(name for name in named if not (source / name).exists()):
        sys.exit(f"the source archive lacks what its README names: {', '.join(missing)}")
    print(f"the archive has all {len(named)} files that its README names")


def try_container(_):
    loader = importlib.machinery.SourceFileLoader("bare_machine", str(installed.ROOT / "tools/bare_machine"))
    bare_machine = importlib.util.module_from_spec(importlib.util.spec_from_loader("bare_machine", loader))
    loader.exec_module(bare_machine)
    steps = list(bare_machine.instructions(DIST / "Dockerfile"))
    base = next(rest for word, rest in steps if word == "FROM").split()[0].removesuffix("-slim")
    if base not in bare_machine.SYSTEMS:
        sys.exit(f"Dockerfile: FROM {base} is none of {', '.join(bare_machine.SYSTEMS)}, on which wheels are tried")
    for source in (words[0] for word, rest in steps if word == "COPY" and len(words := rest.split())):
        if not (DIST / source).exists():
            sys.exit(f"Dockerfile: COPY takes {source}, which {DIST} lacks")
    commands = [rest for word, rest in steps if word == "RUN"]
    wheels = {name for command in commands for name in re.findall(r"/wheels/(\S+\.whl)", command)}
    packages = {name for command in commands for told in re.findall(r"apt-get install([^&;]*)", command)
                for name in told.split() if not name.startswith("-")}
    for wheel in wheels:
        only(wheel)
    for package in packages:
        if not installed.programs_wheel.output("apt-cache", "search", "--names-only", f"^{re.escape(package)}$").strip():
            sys.exit(f"Dockerfile: Debian has no package {package}, as far as this machine's lists know")
    if not wheels or not packages:
        sys.exit(f"Dockerfile: its steps install {len(wheels)} wheels and {len(packages)} packages of Debian")
    print(f"the recipe's files and packages are there: {', '.join(sorted(wheels | packages))}")


def main():
    for part in (try_container, try_programs, try_planner, try_source):
        if len(sys.argv) < 2 or part.__name__ == f"try_{sys.argv[1]}":
            print(f"release: {part.__name__.replace('_', ' ')}", flush=True)
            with tempfile.TemporaryDirectory() as name:
                part(pathlib.Path(name))


if __name__ == "__main__":
    main()
