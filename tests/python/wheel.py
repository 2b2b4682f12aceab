"""The package as people get it: an sdist, the wheel that it builds, and the package's tests with the wheel installed.

Build requirements come from this interpreter's environment, so that only NumPy and auditwheel are fetched. auditwheel
says which systems the wheel runs on; it fails where the wheel needs a library that no policy allows.
"""

import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import venv

TESTS = pathlib.Path(__file__).resolve().parent
REPOSITORY = TESTS.parents[1]


def sdist(folder):
    """The unpacked source distribution of `pip install ./python`'s backend."""
    code = f"import repository; print(repository.build_sdist({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY / "python")
    archive, = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder)
    return folder / archive.name.removesuffix(".tar.gz")


def wheel(source, folder):
    # Paths below the source are the same in every run: a compiler cache finds what earlier runs compiled.
    variables = {**os.environ, "CCACHE_BASEDIR": str(source), "CCACHE_NOHASHDIR": "1"}
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
                    "--wheel-dir", folder, source], check=True, env=variables)
    built, = folder.glob("*.whl")
    return built


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        built = wheel(sdist(folder), folder)
        environment = folder / "environment"
        venv.create(environment, with_pip=True)
        python = environment / "bin/python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", built, "auditwheel==6.8.2"], check=True)
        subprocess.run([python, "-m", "auditwheel", "show", built], check=True)
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        for test in sorted(TESTS.glob("*_test.py")):
            subprocess.run([python, test], check=True, env=variables)


if __name__ == "__main__":
    main()
