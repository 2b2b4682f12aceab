"""The documentation keeps up: every module stands in the architecture page, the path through planning has every
header, and no relative link is broken."""

import functools
import pathlib
import re

import module_table
import repository


def module_faults():
    rows = module_table.from_docs()
    programs = repository.lab_programs()
    paths = [path for path in repository.files("src/*/*", "lab/*/*") if path.parent not in programs]
    readme = "\n".join(line.rpartition("|")[0].rpartition("|")[0]
                       for line in repository.read("README.md").splitlines() if line.startswith("| `"))
    for home, module, *_ in {path.parts[:2] for path in paths}:
        if module not in rows:
            yield f"docs/architecture.md: no row for {home}/{module}"
        if f"`{module}`" not in readme:
            yield f"README.md: no row names {home}/{module}"


def link_faults(path):
    text = re.sub(r"```.*?```", "", repository.read(path), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not (repository.ROOT / path.parent / target).exists():
            yield f"{path}: {target} does not exist"


def reference_faults(path):
    """Comments that send the reader to a page of docs/ that isn't there."""
    for page in re.findall(r"\bdocs/[\w/.-]+\.(?:md|svg)", repository.read(path)):
        if not (repository.ROOT / page).is_file():
            yield f"{path}: {page} does not exist"


# Files of other projects that pages speak of: Megatron-LM's.
ELSEWHERE = {"pretrain_gpt.py", "preprocess_data.py"}
_FILE_NAME = re.compile(r"(?<![\w/.*$<{\-+%])(?:\.\./)*((?:[\w.\-]+/)*[\w\-]+\.(?:h|cpp|cu|py|cmake))\b(?![\w/*])")


@functools.cache
def known_endings():
    """Every file of the repository, by its path and by what is left of it without the first folders."""
    endings = set()
    for path in repository.files("*"):
        endings |= {"/".join(path.parts[begin:]) for begin in range(len(path.parts))}
    return endings


def prose_lines(path):
    """(number, text) of what is said to people: a page's lines, and comments in code."""
    sign = {".h": "//", ".cpp": "//", ".cu": "//", ".md": ""}.get(path.suffix, "#")
    for number, line in enumerate(repository.read(path).splitlines(), 1):
        said = re.search(rf"(?:^|\s){sign}(.*)$", line) if sign else re.match("(.*)", line)
        if said:
            yield number, said.group(1)


def name_faults(path):
    """Files that are named and do not exist; a name with capitals, as NAME.cpp, stands for others. One page has names of
    before."""
    if path.name == "renamed.md":
        return
    for number, line in prose_lines(path):
        for name in _FILE_NAME.findall(line):
            if name not in known_endings() | ELSEWHERE and not re.search("[A-Z]{2}", name):
                yield f"{path}:{number}: {name} does not exist"


def path_faults():
    """Headers of what planning is made of that its path for newcomers leaves out."""
    page = repository.read(pathlib.Path("docs/planner.md"))
    path = page.split("## The files, one after the other")[1].split("\n## ")[0]
    for module in ("strategy", "cost", "schedule", "plan"):
        for header in repository.files(f"src/{module}/*.h"):
            if "test" not in header.stem and f"`{header.name}`" not in path:
                yield f"docs/planner.md: the path through planning leaves out {header}"


def main():
    pages = repository.files("*.md")
    sources = repository.files("*.h", "*.cpp", "*.cmake", "CMakeLists.txt", "*.py", "bootstrap", "Makefile")
    faults = list(module_faults()) + list(path_faults())
    for page in pages:
        faults += link_faults(page)
    for source in sources:
        faults += reference_faults(source)
    for named in {*pages, *sources, *repository.files("*.cu")}:
        faults += name_faults(named)
    repository.finish(len(pages) + len(sources), faults)


if __name__ == "__main__":
    main()
