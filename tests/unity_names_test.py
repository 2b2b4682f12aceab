#!/usr/bin/env python3
"""Constants and types of unnamed namespaces are named once in a module: its files are compiled several together, and a new file
changes which."""

import collections
import re

import repository

# At the beginning of a line, so in no function and in no class.
DEFINED = re.compile(r"^(?:(?:static )?(?:constexpr|const) [\w:<>, *&]+?[ *&](\w+)(?:\[\])?\s*[={]|(?:struct|class|enum class) (\w+)\b(?! *;))",
                     re.MULTILINE)
SCOPE = re.compile(r"^namespace(?: [\w:]+)? \{|^\}  // namespace.*", re.MULTILINE)


def unnamed_parts(source):
    """The parts of a source that lie in an unnamed namespace; comments tell where one ends."""
    begin = None
    for bracket in SCOPE.finditer(source):
        if bracket[0] == "namespace {":
            begin = bracket.end()
        elif bracket[0].rstrip() == "}  // namespace" and begin is not None:
            yield source[begin:bracket.start()]
            begin = None


def names_of(path):
    for part in unnamed_parts(repository.read(path)):
        for found in DEFINED.finditer(repository.code_only(part)):
            yield found[1] or found[2]


def main():
    programs = repository.lab_programs()
    places = collections.defaultdict(list)
    paths = [path for path in repository.files("src/**/*.cpp", "lab/**/*.cpp", "src/*/*.cpp", "lab/*/*.cpp")
             if not re.search(r"_test\.cpp$|/test_", str(path)) and path.parent not in programs]
    for path in paths:
        for name in set(names_of(path)):
            places[path.parts[:2], name].append(str(path))
    faults = [f"{' and '.join(sorted(found))} both define {name} in unnamed namespaces: give one another name"
              for (_, name), found in sorted(places.items()) if len(found) > 1]
    repository.finish(len(places), faults)


if __name__ == "__main__":
    main()
