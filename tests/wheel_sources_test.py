"""The planner's wheel needs no library but the C and C++ runtimes: no source that its module reaches includes SentencePiece, zstd,
bzip2, spdlog or another library that Debian's packages link.

The module reaches a source when something that it reaches includes the header beside it. Functions have sections of their own
in the wheel's build, so that files which a unity build joins bring no others along. The tables of handlers have not: no handler
of the modules beneath names a type of such a library.
"""

import pathlib
import re
import sys

import module_table
import repository

MODULE = pathlib.PurePosixPath("python/bindings.cpp")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)
# Sources of buckets, which only the programs have (cmake/Libraries.cmake).
LEFT_OUT = re.compile(r"^#ifdef SLUICE_S3$.*?^#endif", re.M | re.S)
CAUGHT = re.compile(r"catch \((?:const )?(\w+)::\w+")
OWN_TYPES = {"std", "sluice", "base", "toml", "nlohmann"}  # namespaces whose types the module has
# The C++ and C runtimes, and libraries of headers alone: toml++ and xxHash are compiled in.
PROVIDED = re.compile(r"[a-z_0-9]+|(pybind11|nlohmann|toml\+\+|sys)/.*|(fcntl|fnmatch|poll|signal|spawn|unistd|xxhash)\.h")


def reached(sources, name):
    """The sources that an included name brings: the header, and what defines it."""
    for root in ("src", "lab"):
        header = pathlib.PurePosixPath(root, name)
        if header in sources:
            return [path for path in (header, header.with_suffix(".cpp")) if path in sources]
    return []


def faults():
    sources = set(repository.files("src/*/*.h", "src/*/*.cpp", "src/*/*/*.h", "src/*/*/*.cpp", "lab/*/*.h", "lab/*/*.cpp"))
    included_by, waiting = {MODULE: None}, [MODULE]
    for path in waiting:
        for name in INCLUDE.findall(LEFT_OUT.sub("", repository.read(path))):
            found = reached(sources, name)
            if not found and not PROVIDED.fullmatch(name):
                way = [path]
                while included_by[way[-1]]:
                    way.append(included_by[way[-1]])
                yield f"<{name}> would come into the planner's wheel: {' <- '.join(map(str, way))}: move what needs it to another file"
            for each in found:
                if each not in included_by:
                    included_by[each] = path
                    waiting.append(each)
    if len(waiting) < 100:
        yield f"{MODULE} reaches {len(waiting)} files only: does this test still follow includes?"
    linked = module_table.reachable(module_table.from_cmake())["study"]
    for path in sorted(path for path in sources if path.parts[1] in linked and not path.stem.endswith("_test")):
        for match in CAUGHT.finditer(repository.read(path)):
            if match[1] not in OWN_TYPES and match[1] not in linked:
                yield f"{path}: {match.group()}) brings {match[1]} into the planner's wheel: catch std::exception"
    toolchain = repository.read("cmake/Toolchain.cmake")
    if not re.search(r"if\(SLUICE_PYTHON STREQUAL ONLY\)[^)]*-ffunction-sections[^)]*\)[^)]*--gc-sections", toolchain):
        yield "cmake/Toolchain.cmake: the wheel's build has no -ffunction-sections and --gc-sections: unity builds would bring in other files' libraries"


def main():
    repository.finish(1, list(faults()))


if __name__ == "__main__":
    sys.exit(main())
