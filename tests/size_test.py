"""No function of 100 lines or more, no file of 800 or more, unless size_exceptions.txt gives a reason.

A line of size_exceptions.txt reads `PATH: REASON` for a file or `PATH:FUNCTION: REASON` for a function.
"""

import re

import repository

FUNCTION_LINES = 100
FILE_LINES = 800

# What may stand before the brace of a function: a name, parameters, then qualifiers or initialisers.
_HEAD = re.compile(r"([~\w]+(?:\s*<[^;{}]*>)?|operator\s*\S+?|\])\s*\(")
_NO_FUNCTION = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b(?![^{]*\))")
_CONTROL = {"if", "for", "while", "switch", "catch"}


def functions(code):
    """(name, first line, lines) of every function body, outermost first; lambdas count to their function.

    A heuristic on code without comments and literals: a brace whose head, back to the last `;`, `{` or `}`,
    has a parameter list and isn't a type or namespace opens a function; what lies inside belongs to it.
    """
    found = []
    depth = 0
    inside = None  # (depth outside the function, name, offset of its head)
    head = 0  # where the text before the next brace begins
    parentheses = 0
    for match in re.finditer(r"[{}();]", code):
        sign, offset = match.group(), match.start()
        if sign == "(":
            parentheses += 1
        elif sign == ")":
            parentheses = max(0, parentheses - 1)
        elif sign == "{":
            if inside is None and parentheses == 0:
                name = function_name(code[head:offset])
                if name:
                    begin = head + len(code[head:offset]) - len(code[head:offset].lstrip())
                    inside = (depth, name, begin)
            depth += 1
            head = offset + 1 if parentheses == 0 else head
        elif sign == "}":
            depth -= 1
            if inside and depth == inside[0] and not code[match.end():].lstrip().startswith((",", "{", "(")):
                first = repository.line_of(code, inside[2])
                found.append((inside[1], first, repository.line_of(code, offset) - first + 1))
                inside = None
            head = match.end() if parentheses == 0 else head
        elif parentheses == 0:
            head = match.end()
    return found


def function_name(head):
    """The name of the function that `head` begins, or None when it begins something else."""
    if _NO_FUNCTION.search(head) or head.rstrip().endswith("="):
        return None
    match = _HEAD.search(re.sub(r"\[\[.*?\]\]|^\s*#.*$|\btemplate\s*<[^{}]*?>", " ", head, flags=re.MULTILINE))
    name = match and match.group(1).strip()
    return name if name and name not in _CONTROL else None


def exceptions():
    """{"path" or "path:function"} of size_exceptions.txt, and the faults of its lines."""
    allowed, faults = set(), []
    for number, line in enumerate(repository.read("tests/size_exceptions.txt").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        entry, _, reason = line.partition(": ")
        allowed.add(entry)
        if not reason.strip():
            faults.append(f"tests/size_exceptions.txt:{number}: {entry} has no reason")
    return allowed, faults


def main():
    allowed, faults = exceptions()
    too_large = set()
    sources = repository.files("*.h", "*.cpp", "*.cu", "*.py")
    for path in sources:
        source = repository.read(path)
        lines = source.count("\n")
        if lines >= FILE_LINES:
            too_large.add(str(path))
            if str(path) not in allowed:
                faults.append(f"{path}: {lines} lines; a file stays under {FILE_LINES}")
        if path.suffix == ".py":
            continue
        for name, first, length in functions(repository.code_only(source)):
            if length >= FUNCTION_LINES:
                too_large.add(f"{path}:{name}")
                if f"{path}:{name}" not in allowed:
                    faults.append(f"{path}:{first}: {name} has {length} lines; a function stays under {FUNCTION_LINES}")
    faults += [f"tests/size_exceptions.txt: {entry} is small now: remove its line" for entry in allowed - too_large]
    repository.finish(len(sources), faults)


if __name__ == "__main__":
    main()
