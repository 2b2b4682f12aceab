"""`pip install ./python` in a new environment, and the tests of the package with what it installed.

Build requirements come from this interpreter's environment, so that nothing but NumPy has to be fetched again.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import venv

TESTS = pathlib.Path(__file__).resolve().parent
PACKAGE = TESTS.parents[1] / "python"


def main():
    with tempfile.TemporaryDirectory() as folder:
        wheels = pathlib.Path(folder, "wheels")
        subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
                        "--wheel-dir", wheels, PACKAGE], check=True)
        environment = pathlib.Path(folder, "environment")
        venv.create(environment, with_pip=True)
        python = environment / "bin/python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wheels.glob("*.whl")], check=True)
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        for test in sorted(TESTS.glob("*_test.py")):
            subprocess.run([python, test], check=True, env=variables)


if __name__ == "__main__":
    main()
