"""What the checks in this folder share: the repository's files, C++ without comments and strings, reporting."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

_NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


def files(*patterns):
    """Paths of the repository's files, relative to its root, that match one of the glob patterns.

    With git: what is tracked or would be added; otherwise (an unpacked archive) all that .gitignore leaves.
    """
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        paths = [pathlib.PurePosixPath(name) for name in listing.stdout.decode().split("\0") if name]
    else:
        made = re.compile(r"(build(-\w+)?|runs|corpora)/|.*__pycache__/")
        paths = [pathlib.PurePosixPath(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
        paths = [path for path in paths if not made.match(str(path))]
    matching = {path for path in paths if any(path.match(pattern) for pattern in patterns)}
    return sorted(path for path in matching if (ROOT / path).is_file())


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def code_only(source):
    """`source` with comments and literals blanked; line and column of everything else stay the same."""
    return _NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), source)


def comments_of(source):
    """Texts of the // comments of C++ code. Those on lines of their own make one text as long as they follow each other."""
    texts, line_behind = [], None
    for match in _NOT_CODE.finditer(source):
        if not match.group().startswith("//"):
            continue
        line, text = line_of(source, match.start()), match.group().removeprefix("//")
        own_line = not source[source.rfind("\n", 0, match.start()) + 1:match.start()].strip()
        if own_line and line == line_behind:
            texts[-1] += "\n" + text
        else:
            texts.append(text)
        line_behind = line + 1 if own_line else None
    return texts


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def finish(checked, faults):
    """Prints the faults and ends the check: status 1 if there are any, or if nothing was checked."""
    for fault in sorted(set(faults)):
        print(fault)
    if not checked:
        print("nothing was checked: is this the repository?")
    print(f"{checked} checked, {len(set(faults))} faults")
    sys.exit(1 if faults or not checked else 0)


def lab_programs():
    """The folders of lab/ that build themselves: programs and tests, no modules."""
    return {path.parent for path in files("lab/*/CMakeLists.txt")}
