"""The planner's wheel as people get it: it is made (packaging/planner_wheel.py), installed in a new environment, and the
package's tests run there.

The wheel stays in build/wheels (WHEELS names another folder). It is for the Python that runs this. If that Python has no venv,
as that of another Debian release, TOOLS_PYTHON names a Python that makes the tools' environment; the wheel is then only made,
and tests/python/on_bare_debian.sh tests it.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent
REPOSITORY = TESTS.parents[1]
sys.path.insert(0, str(REPOSITORY / "packaging"))

import planner_wheel  # noqa: E402

WHEELS = pathlib.Path(os.environ.get("WHEELS", REPOSITORY / "build" / "wheels"))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        built = planner_wheel.make(WHEELS, folder)
        if os.environ.get("TOOLS_PYTHON"):
            return
        python = planner_wheel.environment(folder / "environment", str(built))
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        for test in sorted(TESTS.glob("*_test.py")):
            subprocess.run([python, test], check=True, env=variables)


if __name__ == "__main__":
    main()
