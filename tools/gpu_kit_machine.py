"""Where things lie on the machine that a GPU kit came to."""

import importlib.util
import os
import pathlib
import shutil
import sys


class Context:
    """The kit's folders, and the environment in which its programs start."""

    def __init__(self, folder, programs):
        self.folder = folder
        # What `gpu_kit build` made there comes before what travelled.
        built = folder / "built"
        self.programs = built if (built / "sluice").exists() else programs
        self.scratch = folder / "scratch"
        self.scratch.mkdir(exist_ok=True)
        self.environment = os.environ | {"LD_LIBRARY_PATH": ":".join(map(str, library_folders(folder)))}

    def program(self, name):
        return str(self.programs / name)


def torch_folder():
    """Of the PyTorch that this Python has; None without one. Found, not imported: importing takes seconds."""
    found = importlib.util.find_spec("torch")
    return pathlib.Path(found.submodule_search_locations[0]) if found else None


def library_folders(folder):
    """libtorch's first, then those of the NVIDIA wheels beside it, then what travelled."""
    torch = torch_folder()
    if torch is None:
        sys.exit(f"gpu_kit: {sys.executable} has no PyTorch: call this with a Python that has its CUDA wheels")
    nvidia = torch.parent / "nvidia"
    return [torch / "lib", nvidia / "cu13" / "lib", *sorted(nvidia.glob("*/lib")), folder / "lib"]


def has(program):
    return shutil.which(program) is not None
