"""Exit status 0 if this environment holds the given wheels, every file as its record says; else 1.

Arguments are pip requirements, NAME, NAME==VERSION or NAME[EXTRAS]==VERSION. A pip that was killed leaves a
wheel without its record, or files that are missing or short.
"""

import importlib.metadata
import re
import sys


def complete(requirement: str) -> bool:
    name, _, version = re.sub(r"\[.*\]", "", requirement).partition("==")
    try:
        wheel = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    if version and wheel.version != version:
        return False
    return bool(wheel.files) and all(map(file_is_whole, wheel.files))


def file_is_whole(file: importlib.metadata.PackagePath) -> bool:
    if file.size is None or file.suffix == ".pyc":
        return True
    try:
        return file.locate().stat().st_size == file.size
    except OSError:
        return False


sys.exit(not all(map(complete, (word for word in sys.argv[1:] if word != "--"))))
