"""Executes the notebooks of examples/notebooks, each in an empty folder: by nbclient where this Python has it (`make notebooks`), or
else cell by cell in one interpreter. ONLY names some."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples/notebooks"
LIMIT_S = 900


def cells(path):
    notebook = json.loads(path.read_text())
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def faults(path):
    """A committed notebook has no outputs: they would say what some machine printed once."""
    for cell in json.loads(path.read_text())["cells"]:
        if cell.get("outputs") or cell.get("execution_count"):
            yield f"{path.name}: cell {cell['id']} has outputs: clear them"


def execute(path, work, variables):
    try:
        import nbclient  # noqa: F401
    except ImportError:
        script = "\n\n".join(cells(path))
        return subprocess.run([sys.executable, "-c", script], cwd=work, env=variables, check=False, timeout=LIMIT_S).returncode
    code = ("import sys, nbformat, nbclient; notebook = nbformat.read(sys.argv[1], 4); nbformat.validate(notebook); "
            f"nbclient.NotebookClient(notebook, timeout={LIMIT_S}, kernel_name='python3').execute()")
    return subprocess.run([sys.executable, "-c", code, path], cwd=work, env=variables, check=False).returncode


def main():
    program = pathlib.Path(os.environ.get("SLUICE", "build/sluice")).resolve()
    variables = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not re.search(os.environ.get("ONLY", ""), path.stem):
            continue
        found = list(faults(path))
        with tempfile.TemporaryDirectory() as work:
            print(f"=== {path.name}", flush=True)
            if found or execute(path, work, variables):
                sys.exit("\n".join(found) or f"{path.name} fails")


if __name__ == "__main__":
    main()
