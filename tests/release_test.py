"""A release is one version and one set of pins: everything that names them names those of CMakeLists.txt and tools/bootstrap."""

import fnmatch
import pathlib
import re
import sys

import repository

sys.dont_write_bytecode = True  # packaging/ stays without caches
sys.path.insert(0, str(repository.ROOT / "packaging"))

import programs_wheel  # noqa: E402


def version_faults():
    version = programs_wheel.version()
    newest = re.search(r"^## (\S+)", repository.read(pathlib.PurePosixPath("CHANGELOG.md")), re.M)
    if not newest or newest.group(1) != version:
        yield f"CHANGELOG.md: its newest entry is not {version}, the version of CMakeLists.txt"
    for path in repository.files("*.cpp", "*.h", "*.py", "*.toml", "*.cmake", "Makefile"):
        if re.search(rf"[sS]luice\W{{1,4}}(version\W+)?{re.escape(version)}\b", repository.read(path)) and path.name != "CMakeLists.txt":
            yield f"{path}: the version {version} is typed: take it from CMakeLists.txt"


def pin_faults():
    """Versions of wheels that pages and recipes tell people to install, beside those that were built and tested with."""
    known = programs_wheel.pins()
    for path in repository.files("packaging/*", "docs/*.md", "README.md"):
        for name, version in re.findall(r"\b([\w-]+)==([\w.]+\w)", repository.read(path)):
            if name in known and known[name] != version:
                yield f"{path}: {name}=={version}, but tools/bootstrap has {known[name]}"


def script_faults():
    """Scripts that the program starts, and those that they import, which the wheel has to bring."""
    brought = set(programs_wheel.SCRIPTS)
    program = "\n".join(repository.read(path) for path in repository.files("src/*/*.cpp", "cli/*.cpp", "cli/*/*.cpp")
                        if not path.name.endswith("_test.cpp"))
    scripts = {path.stem: repository.read(path) for path in repository.files("tools/*.py")}
    started = {name for name in scripts if f'"{name}.py"' in program}
    imported = {name for script in started | brought for name in scripts if re.search(rf"^\s*(import|from) {name}\b", scripts[script], re.M)}
    for name in sorted((started | imported) - brought):
        yield f"packaging/programs_wheel.py: the program starts tools/{name}.py, which the wheel does not bring"
    for name in sorted(brought - set(scripts)):
        yield f"packaging/programs_wheel.py: there is no tools/{name}.py"


def source_faults():
    """Files that CMakeLists.txt reads, and that the planner's source distribution leaves out."""
    included = re.search(r"^sdist\.include = \[(.*?)\]", repository.read(pathlib.PurePosixPath("pyproject.toml")), re.M | re.S)
    patterns = re.findall(r'"/([^"]+)"', included.group(1))
    for path in re.findall(r"\$\{PROJECT_SOURCE_DIR\}/(data/[\w./*]+)", repository.read(pathlib.PurePosixPath("CMakeLists.txt"))):
        if not any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
            yield f"pyproject.toml: CMakeLists.txt reads {path}, which sdist.include leaves out"


def main():
    faults = [*version_faults(), *pin_faults(), *script_faults(), *source_faults()]
    repository.finish(len(repository.files("packaging/*")), faults)


if __name__ == "__main__":
    main()
