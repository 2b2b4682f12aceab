"""The programs `sluice` and `sluice-torch`, and where they find libtorch: in the package `torch` beside this one."""

import importlib.util
import os
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent


def libraries(folder=FOLDER):
    """The folders of libtorch, where they are not those that the programs' run paths name; or none."""
    if (folder.parent / "torch/lib/libtorch_cpu.so").exists():
        return []
    torch = importlib.util.find_spec("torch")
    if torch is None or not torch.submodule_search_locations:
        return []
    package = pathlib.Path(next(iter(torch.submodule_search_locations)))
    return [str(path) for path in (package / "lib", package.parent / "nvidia/cu13/lib") if path.is_dir()]


def environment(variables, folder=FOLDER):
    """The programs' environment. Tokenizers, templates and rewards run under this Python, which has what they import."""
    told = dict(variables)
    told.setdefault("SLUICE_PYTHON", sys.executable)
    if found := libraries(folder):
        told["LD_LIBRARY_PATH"] = ":".join([*found, *filter(None, [told.get("LD_LIBRARY_PATH")])])
    return told


def start(name):
    """Becomes the program; returns only where it cannot be started."""
    program = FOLDER / "bin" / name
    try:
        os.execve(program, [name, *sys.argv[1:]], environment(os.environ))
    except OSError as error:
        sys.exit(f"sluice: {program} cannot be started: {error.strerror}: install the package sluice-train again")


def sluice():
    start("sluice")


def sluice_torch():
    start("sluice-torch")
