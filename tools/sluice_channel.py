"""The channel between a script of Sluice's and Sluice: descriptor 3, a socket.

Sluice starts scripts with `python3 -E`, their standard input empty and their standard output joined to standard error:
what packages, sitecustomize or the functions of users print is no answer. -E keeps PYTHONPATH, PYTHONHOME and their kin
from putting other modules in front of the scripts' own. Folders of PYTHONPATH come behind all others, so that packages
are found that lie there alone.

After start-up and after every question a script writes a status byte: K, and the answer; X, a uint64 size and a message,
which names what is at fault; or at start-up M and a message likewise: this Python lacks a package.
"""

import importlib
import os
import site
import struct
import sys

source = open(3, "rb", buffering=1 << 16, closefd=False)
sink = open(3, "wb", buffering=1 << 16, closefd=False)
os.set_inheritable(3, False)

python_path = [os.path.abspath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
if os.environ.get("PYTHONNOUSERSITE") and site.getusersitepackages() in sys.path:
    sys.path.remove(site.getusersitepackages())
sys.path.extend(python_path)


class Lacking(Exception):
    """This Python cannot import a package: a part of a sentence, and perhaps another Python can."""


def package(name):
    """The module, with what it needs."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.split(".")[0] == error.name:
            raise Lacking(f"{sys.executable} has no package `{error.name}`") from error
        raise Lacking(f"{sys.executable} cannot import `{name}`: {type(error).__name__}: {one_line(error)}") from error
    except Exception as error:
        raise Lacking(f"{sys.executable} cannot import `{name}`: {type(error).__name__}: {one_line(error)}") from error


def one_line(message):
    """A message of a package or of a user's function, whose lines are joined: errors of Sluice are one line."""
    return " ".join(line.strip() for line in str(message).splitlines() if line.strip())


def read_exactly(size):
    data = source.read(size)
    if len(data) != size:
        sys.exit(0)
    return data


def read_size():
    return struct.unpack("<Q", read_exactly(8))[0]


def packed(text):
    data = text if isinstance(text, bytes) else str(text).encode("utf-8", "replace")
    return struct.pack("<Q", len(data)) + data


def refusal(message, status=b"X"):
    return status + packed(one_line(message))


def tell(*parts):
    sink.writelines(parts)
    sink.flush()


def tell_lacking(error):
    tell(refusal(error, b"M"))


def run(main):
    """Runs a script, which has nobody to tell anything once Sluice is gone."""
    try:
        main()
    except (BrokenPipeError, ConnectionResetError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())
