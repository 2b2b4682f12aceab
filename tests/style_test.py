"""Rules that a pattern can hold: what libraries under src/ and lab/ must not do, and how headers and includes look."""

import re

import repository

# pattern of forbidden code, what to do instead, files that may all the same
RULES = [
    (r"\b(?:secure_)?getenv\s*\(", "read the environment in cli/ and pass an option down",
     ("src/runtime/test_cluster.cpp", "src/transport/test_launch.h")),  # steps that `make test` looks at; what ranks are told
    (r"\bfriend\b", "make it a member, or give the class what the friend needs", ()),
    (r"\bstd::(?:cout|cerr|clog)\b", "libraries never print: return a value, or use base/log.h", ()),
    (r"(?<![\w:.>])(?:std::)?(?:printf|fprintf|puts|perror)\s*\(", "libraries never print: use base/log.h", ()),
    (r"(?<![\w.>:])(?<!void )(?:::|std::)?_?(?:exit|quick_exit|_Exit|abort)\s*\(",
     "libraries never exit: throw an error of base/error.h",
     ("src/base/error.cpp",              # a broken assertion has nothing to unwind to
      "src/transport/heartbeat.cpp",     # unwinding through a communicator that lost a member would hang
      "src/transport/local_launcher.cpp",  # the child between fork and exec
      "src/survive/child_process.cpp")),  # a child of fork alone
    (r"\busing\s+namespace\b(?!\s+std::(?:literals|chrono_literals|string_view_literals))",
     "name what you use", ()),
    (r"\bstd::(?:shuffle|mt19937\w*|\w+_distribution)\b", "use base/rng.h: the same numbers everywhere", ()),
    (r"\bstd::random_device\b", "use base/rng.h: the same numbers everywhere",
     ("src/transport/heartbeat.cpp",)),  # a token that keeps strangers out of the ring of heartbeats
]
RULES = [(re.compile(pattern), advice, allowed) for pattern, advice, allowed in RULES]
# An error's message is one line (base/error.h): line feeds in it are shown as escapes.
LINES_OF_AN_ERROR = re.compile(r"\bthrow\s+[\w:]*Error\([^;]*?(?<!\\)\\n")
# Two literals in one line are what a formatter left of a text that it had cut and joined again.
_LITERAL = r'"(?:[^"\\\n]|\\.)*"'
CUT_LITERAL = re.compile(rf'^(?:[^"\n]|{_LITERAL})*?{_LITERAL}[ \t]+"', re.MULTILINE)
PASSES_BY = re.compile(r"(?<![\w.>])std::(?:printf|puts|fwrite|clog)\b")  # what main puts before std::cout


def faults_of(path, programs):
    source = repository.read(path)
    code = repository.code_only(source)
    is_test = path.name.endswith("_test.cpp")
    if path.suffix == ".h" and not re.search(r"^#pragma once$", code, re.MULTILINE):
        yield f"{path}: a header needs #pragma once"
    if path.suffix == ".h" and not source.startswith(("//", "/*")):
        yield f"{path}: a header begins with a comment that says what it is"
    if path.parts[0] == "cli":
        for match in PASSES_BY.finditer(code):
            yield f"{path}:{repository.line_of(code, match.start())}: {match.group()}: use std::cout or cli/print.h"
    for match in CUT_LITERAL.finditer(source):
        if not re.search("//|'\"'|R\"", match.group()):
            yield f"{path}:{repository.line_of(source, match.end())}: two literals in one line: make them one"
    for match in () if is_test else LINES_OF_AN_ERROR.finditer(source):
        yield f"{path}:{repository.line_of(source, match.end())}: an error's message is one line: log the others before it"
    if path.parts[0] not in ("src", "lab") or path.parent in programs or is_test:
        return
    for pattern, advice, allowed in RULES:
        if str(path) in allowed:
            continue
        for match in pattern.finditer(code):
            yield f"{path}:{repository.line_of(code, match.start())}: {match.group().strip()}: {advice}"


def main():
    sources = repository.files("src/*/*.h", "src/*/*.cpp", "src/*/*.cu", "src/*/*/*.h", "src/*/*/*.cpp", "src/*/*/*.cu", "lab/*/*.h", "lab/*/*.cpp", "cli/*.h", "cli/*.cpp", "tests/*/*.h")
    programs = repository.lab_programs()
    repository.finish(len(sources), [fault for path in sources for fault in faults_of(path, programs)])


if __name__ == "__main__":
    main()
