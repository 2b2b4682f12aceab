"""The module table, read from the two places that state it: CMakeLists.txt and docs/architecture.md."""

import re

import repository


def from_cmake():
    """{module: (uses libtorch, set of the modules its line names)} in the order of CMakeLists.txt."""
    table = {}
    for words in re.findall(r"^sluice_module\(([^)]*)\)", repository.read("CMakeLists.txt"), re.MULTILINE):
        name, *rest = words.split()
        section, depends = None, set()
        for word in rest:
            if word in ("TORCH", "DEPENDS", "EXTERNAL"):
                section = word
            elif section == "DEPENDS":
                depends.add(word)
        table[name] = ("TORCH" in rest, depends)
    return table


def from_docs():
    """{module: (layer, uses libtorch, set of the modules its row names)} of docs/architecture.md.

    A row reads: | layer | `module` [†] | purpose | modules or – |, where † means: without libtorch.
    """
    row = re.compile(r"^\| *(\d+) *\| *`(\w+)`( †)? *\|[^|]*\|([^|]*)\|", re.MULTILINE)
    return {
        name: (int(layer), not torch_free, set(re.findall(r"\w+", depends)))
        for layer, name, torch_free, depends in row.findall(repository.read("docs/architecture.md"))
    }


def reachable(table):
    """{module: every module that it may include, itself too}; ValueError on a cycle, naming it."""
    closure = {}

    def visit(name, path):
        if name in path:
            raise ValueError("modules in a cycle: " + " -> ".join(path[path.index(name):] + [name]))
        if name not in closure:
            closure[name] = {name}.union(*(visit(other, path + [name]) for other in table[name][1]))
        return closure[name]

    for name in table:
        visit(name, [])
    return closure
