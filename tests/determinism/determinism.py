"""Builds plan_instances with several compilers and compares what the programs write, byte for byte.

determinism.py --folder FOLDER [--count N] [--seed S] [--jobs N] [--builds NAME,...]: every build makes the plans of
N instances with one thread and with four; exit status 1 when a digest differs. Builds: gcc-0, gcc-3, clang-0, clang-3.
"""

import argparse
import hashlib
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FLAGS = {"0": "-O0", "3": "-O3 -march=native"}
COMPILERS = {"gcc": ("g++",), "clang": ("clang++-16", "clang++")}
THREADS = (1, 4)


def compiler(family):
    found = next((name for name in COMPILERS[family] if shutil.which(name)), None)
    return found or sys.exit(f"none of {', '.join(COMPILERS[family])} is installed: run tools/bootstrap --developer")


def build(name, folder, jobs):
    """Path of the program."""
    family, level = name.split("-")
    binaries = folder / name
    subprocess.run(["cmake", "-S", str(ROOT), "-B", str(binaries), "-G", "Ninja", "-DSLUICE_TORCH=OFF",
                    f"-DCMAKE_CXX_COMPILER={compiler(family)}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                    f"-DCMAKE_CXX_FLAGS_RELWITHDEBINFO={FLAGS[level]}"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", str(binaries), f"-j{jobs}", "plan_instances"], check=True)
    return binaries / "plan_instances"


def run(program, options, threads):
    """The lines that the program writes."""
    command = [str(program), "--count", str(options.count), "--seed", str(options.seed), "--threads", str(threads)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()


def digest(lines):
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def first_difference(lines, others):
    return next((i for i, (line, other) in enumerate(zip(lines, others)) if line != other), min(len(lines), len(others)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--builds", default="gcc-0,gcc-3,clang-0,clang-3")
    options = parser.parse_args()
    expected, same = None, True
    for name in options.builds.split(","):
        program = build(name, options.folder, options.jobs)
        for threads in THREADS:
            lines = run(program, options, threads)
            print(f"{name}, {threads} threads: {digest(lines)}", flush=True)
            expected = expected or lines
            if lines != expected:
                same = False
                print(f"  instance {options.seed + first_difference(lines, expected)} differs from the first build's")
    print(f"{options.count} instances: " + ("every build makes the same plans" if same else "the builds DIFFER"))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
