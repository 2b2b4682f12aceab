"""No function of 60 lines or more, no file of 800 or more, no class of more than 250 lines or 25 functions over all
members, unless size_exceptions.txt gives a reason.

A line of size_exceptions.txt reads `PATH: REASON` for a file, `PATH:FUNCTION: REASON` for a function or
`PATH:class CLASS: REASON` for a class, where PATH is where it is defined.
"""

import re

import repository

FUNCTION_LINES = 60
FILE_LINES = 800
CLASS_LINES = 250
CLASS_FUNCTIONS = 25

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


_CLASS = re.compile(r"\b(?:class|struct)\s+(\w+)\s*(?:final\s*)?(?::[^:;{}][^;{}]*)?\{")
_NO_MEMBER = re.compile(r"\s*(using|typedef|friend|static_assert|enum|struct|class|union)\b")
_MEMBER = re.compile(r"^[^\s#/}][^;{}]*?\b(\w+)(?:<[^<>]*>)?::(?:~?\w+|operator[^\s(]+)\s*\(", re.MULTILINE)


def end_of_block(code, brace):
    """The offset behind the brace that closes the one at `brace`."""
    depth = 0
    for match in re.finditer(r"[{}]", code[brace:]):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return brace + match.end()
    return len(code)


def declares_function(head):
    """Whether a class's member whose text up to `;` or its body is `head` is a function."""
    head = re.sub(r"\[\[.*?\]\]", " ", head)
    if _NO_MEMBER.match(head):
        return False
    head = re.sub(r"\boperator\s*(\(\s*\)|[^\s\w(]+)", "operator_", head)
    while (shorter := re.sub(r"<[^<>]*>", " ", head)) != head:
        head = shorter
    opening, equals = head.find("("), head.find("=")
    return 0 <= opening and not 0 <= equals < opening and re.search(r"[~\w]\s*$", head[:opening]) is not None


def member_functions(body):
    """How many functions the text between a class's braces declares or defines; those of nested classes apart."""
    count = depth = head = parentheses = 0
    for match in re.finditer(r"[{}();]|\b(?:public|private|protected)\s*:", body):
        sign = match.group()
        if sign in "()":
            parentheses = max(0, parentheses + (1 if sign == "(" else -1))
            continue
        outside = depth == 0 and parentheses == 0
        if sign in "{;" and outside and declares_function(body[head:match.start()]):
            count += 1
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign != "{" and depth == 0 and parentheses == 0:
            head = match.end()
    return count


def members_outside(code):
    """(class, lines) of every member function that is defined outside of its class."""
    for match in _MEMBER.finditer(code):
        behind = re.sub(r"\{[^{}]*\}(?=\s*[,{])", lambda braces: " " * len(braces.group()), code[match.end():])
        sign = re.search(r"[{;]", behind)
        if sign and sign.group() == "{":
            end = end_of_block(code, match.end() + sign.start())
            yield match.group(1), code.count("\n", match.start(), end) + 1


def unit_of(path):
    return re.sub(r"(_cuda)?\.\w+$", "", str(path))


def classes(sources):
    """(path, class, lines, functions) of every class, its members in other files of its folder counted to it."""
    defined, outside = {}, {}
    for path, code in sources.items():
        for match in _CLASS.finditer(code):
            end = end_of_block(code, match.end() - 1)
            defined.setdefault((path.parent, match.group(1)), []).append(
                (path, code.count("\n", match.start(), end) + 1, member_functions(code[match.end():end - 1])))
        for name, lines in members_outside(code):
            outside.setdefault((path.parent, name), []).append((path, lines))
    for key, definitions in defined.items():
        for path, lines, count in definitions:
            alone = len(definitions) == 1
            lines += sum(more for other, more in outside.get(key, []) if alone or unit_of(other) == unit_of(path))
            yield path, key[1], lines, count


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
    product = {}  # code of what is neither a test nor a benchmark
    for path in sources:
        source = repository.read(path)
        lines = source.count("\n")
        if lines >= FILE_LINES:
            too_large.add(str(path))
            if str(path) not in allowed:
                faults.append(f"{path}: {lines} lines; a file stays under {FILE_LINES}")
        if path.suffix == ".py":
            continue
        code = repository.code_only(source)
        if path.parts[0] != "bench" and "test" not in path.stem.split("_"):
            product[path] = code
        for name, first, length in functions(code):
            if length >= FUNCTION_LINES:
                too_large.add(f"{path}:{name}")
                if f"{path}:{name}" not in allowed:
                    faults.append(f"{path}:{first}: {name} has {length} lines; a function stays under {FUNCTION_LINES}")
    for path, name, lines, count in classes(product):
        if lines > CLASS_LINES or count > CLASS_FUNCTIONS:
            too_large.add(f"{path}:class {name}")
            if f"{path}:class {name}" not in allowed:
                faults.append(f"{path}: class {name} has {lines} lines and {count} functions over all members; a class "
                              f"stays within {CLASS_LINES} and {CLASS_FUNCTIONS}")
    faults += [f"tests/size_exceptions.txt: {entry} is small now: remove its line" for entry in allowed - too_large]
    repository.finish(len(sources), faults)


if __name__ == "__main__":
    main()
