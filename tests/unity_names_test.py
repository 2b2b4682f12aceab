#!/usr/bin/env python3
"""Constants, types and functions of unnamed namespaces are named once in a module, and once in a test program: files are compiled
several together, and a new file changes which. Functions may share a name where no call fits both, and aliases where they are the
same."""

import collections
import re

import repository

# At the beginning of a line, so in no function and in no class.
DEFINED = re.compile(r"^(?:(?:static )?(?:constexpr|const) [\w:<>, *&]+?[ *&](\w+)(?:\[\w*\])*\s*[={]|(?:struct|class|enum class) (\w+)\b(?! *;))",
                     re.MULTILINE)
# The result's type, which may have arguments, then the name and the parameters' opening bracket.
FUNCTION = re.compile(r"^(?!using |return |namespace |struct |class |enum |template |TEST)(?:[\w:]+(?:<[^;{}()]*>)?[ *&]+)+(\w+)\(", re.MULTILINE)
ALIAS = re.compile(r"^using (\w+) = ([^;]+);", re.MULTILINE)
SCOPE = re.compile(r"^namespace(?: [\w:]+)? \{|^\}  // namespace.*", re.MULTILINE)
OPENING, CLOSING = "(<[{", ")>]}"


def unnamed_parts(source):
    """The parts of a source that lie in an unnamed namespace; comments tell where one ends."""
    begin = None
    for bracket in SCOPE.finditer(source):
        if bracket[0] == "namespace {":
            begin = bracket.end()
        elif bracket[0].rstrip() == "}  // namespace" and begin is not None:
            yield source[begin:bracket.start()]
            begin = None


def parameters_of(code, begin):
    """The parameters between a bracket that opened before `begin` and the one that closes it, and where that is."""
    parts, depth, start = [], 0, begin
    for at in range(begin, len(code)):
        if depth == 0 and code[at] in ",)":
            parts.append(code[start:at])
            start = at + 1
            if code[at] == ")":
                return parts, at
        depth += (code[at] in OPENING) - (code[at] in CLOSING)
    return parts, len(code)


def type_of(parameter):
    """A parameter without its name and its default, as a call sees it: `Tensor` of `const Tensor& x = {}`."""
    declared = " ".join(parameter.split("=")[0].split())
    named = re.fullmatch(r"(.*[\s*&>])\w+(\[\w*\])?", declared)
    written = (named[1].strip() + (named[2] or "")) if named and named[1].strip() != "const" else declared
    return written.removeprefix("const ").removesuffix("&").strip()


def signatures_of(name, parameters):
    """A function's signature, and those of calls that leave out parameters with defaults."""
    given = [parameter for parameter in parameters if parameter.strip()]
    least = sum("=" not in parameter for parameter in given)
    for count in range(least, len(given) + 1):
        yield f"{name}({', '.join(map(type_of, given[:count]))})"


def functions_of(code):
    for found in FUNCTION.finditer(code):
        parameters, end = parameters_of(code, found.end())
        # A declaration's definition stands in the same file.
        if re.match(r"\)[\w\s]*(?:->[^;{]*)?\{", code[end:]):
            yield from signatures_of(found[1], parameters)


def names_of(path):
    for part in unnamed_parts(repository.read(path)):
        code = repository.code_only(part)
        for found in DEFINED.finditer(code):
            yield found[1] or found[2]
        yield from functions_of(code)


def aliases_of(path):
    """(name, type) of each alias in an unnamed namespace."""
    for part in unnamed_parts(repository.read(path)):
        for found in ALIAS.finditer(repository.code_only(part)):
            yield found[1], " ".join(found[2].split())


def test_of(path):
    """Whether a file belongs to a module's test program, as cmake/SluiceModule.cmake says."""
    return re.search(r"_test\.cpp$|/test_", str(path)) is not None


def main():
    programs = repository.lab_programs()
    places, aliases = collections.defaultdict(list), collections.defaultdict(dict)
    paths = [path for path in repository.files("src/**/*.cpp", "lab/**/*.cpp", "src/*/*.cpp", "lab/*/*.cpp") if path.parent not in programs]
    for path in paths:
        for name in set(names_of(path)):
            places[path.parts[:2], test_of(path), name].append(str(path))
        for name, meaning in aliases_of(path):
            aliases[path.parts[:2], test_of(path), name][meaning] = str(path)
    faults = [f"{' and '.join(sorted(found))} both define {name} in unnamed namespaces: give one another name"
              for (*_, name), found in sorted(places.items()) if len(found) > 1]
    for (*scope, name), found in sorted(aliases.items()):
        others = sorted({*found.values(), *places.get((*scope, name), [])})
        if len(others) > 1 and len(found) + ((*scope, name) in places) > 1:
            faults.append(f"{' and '.join(others)} mean different things by {name} in unnamed namespaces: give one another name")
    repository.finish(len(places) + len(aliases), faults)


if __name__ == "__main__":
    main()
