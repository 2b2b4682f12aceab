"""What must not be committed: paths of somebody's machine, merge markers, private keys, stray bytes."""

import pathlib
import re

import repository

FORBIDDEN = [
    (re.compile(r"(?<![\w.~}/-])/(?:home|root|Users|work|mnt|media)/[\w.-]+"), "a path of one machine"),
    (re.compile(r"^(?:<{7} |>{7} |={7}$)", re.MULTILINE), "a merge marker"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"), "a private key"),
    (re.compile(r"\r"), "a carriage return"),
    (re.compile(r"[ \t]+$", re.MULTILINE), "white space at the end of a line"),
]
LARGEST_BYTES = 1 << 20
# Fixtures keep other people's bytes as they are.
DATA = ("tests/*/fixtures/*", "tests/*/golden/*", "tests/fixtures/*", "tests/fixtures/*/*", "bench/results/*")


def faults_of(path, own_paths):
    content = (repository.ROOT / path).read_bytes()
    if len(content) > LARGEST_BYTES:
        yield f"{path}: {len(content)} bytes; make large files where they are needed"
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return
    for own in own_paths:
        if own in text:
            yield f"{path}:{repository.line_of(text, text.index(own))}: a path of this machine: {own}"
    if any(path.match(pattern) for pattern in DATA):
        return
    for pattern, what in FORBIDDEN:
        for match in pattern.finditer(text):
            yield f"{path}:{repository.line_of(text, match.start())}: {what}: {match.group().strip()!r}"


def main():
    # This checkout's own folder and home; short ones (a container's /root, /src) would match by chance.
    own_paths = [str(folder) for folder in (repository.ROOT, pathlib.Path.home()) if len(folder.parts) > 2]
    paths = repository.files("*")
    repository.finish(len(paths), [fault for path in paths for fault in faults_of(path, own_paths)])


if __name__ == "__main__":
    main()
