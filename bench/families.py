#!/usr/bin/env python3
"""Prints how many lines of code the families of models cost: each file of readers with its families, and what they share.

    bench/families.py
"""

import pathlib
import re
import statistics

FAMILIES = pathlib.Path(__file__).resolve().parent.parent / "src" / "model" / "families"
READER = re.compile(r"^void (read_\w+)\(Reader& \w+, Shape& \w+\) \{", re.MULTILINE)


def rows():
    """{reader: model types} of the registry."""
    registry = (FAMILIES / "registry.cpp").read_text()
    table = registry[registry.index("kFamilies[] = {"):registry.index("}  // namespace")]
    found = {}
    for row in re.split(r"^    \{", table, flags=re.MULTILINE)[1:]:
        found.setdefault(re.search(r"\bread_\w+", row)[0], []).append(re.match(r'"(\w+)"', row)[1])
    return found


def lines_of(source):
    """All but includes and empty lines."""
    return sum(bool(line.strip()) and not line.startswith("#include") for line in source.splitlines())


def main():
    types, shared, costs = rows(), 0, []
    print("| file | model types | lines | lines a type |\n| --- | --- | ---: | ---: |")
    for path in sorted(FAMILIES.glob("*.cpp")):
        source = path.read_text()
        here = [name for reader in READER.findall(source) for name in types.get(reader, [])]
        if not here:
            shared += lines_of(source) if path.name != "registry.cpp" else 0
            continue
        each = lines_of(source) / len(here)
        costs += [each] * len(here)
        print(f"| {path.name} | {', '.join(here)} | {lines_of(source)} | {each:.0f} |")
    print(f"\n{len(costs)} model types: median {statistics.median(costs):.0f} lines, at most {max(costs):.0f}. "
          f"Files that serve several of these readers have {shared} lines together.")


if __name__ == "__main__":
    main()
