"""Which files of the repository and of the build a test opens or executes, by strace, beside those that it declares."""

import os
import re
import subprocess
import tempfile

OPENED = re.compile(r'(?:openat\([^,]+, |open\(|execve\()"((?:[^"\\]|\\.)*)".*\) = [0-9]')
FOLDER = re.compile(r'O_DIRECTORY|O_PATH')


def opened(test, roots):
    """Existing files below `roots` that one run of a test opens. Scratch files of tests lie elsewhere."""
    variables = dict(entry.split("=", 1) for entry in test.properties.get("ENVIRONMENT", []))
    folder = test.properties["WORKING_DIRECTORY"]
    found = set()
    with tempfile.NamedTemporaryFile("r", suffix=".strace", errors="replace") as log:
        subprocess.run(["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=open,openat,execve", "-o", log.name, *test.command],
                       cwd=folder, env=os.environ | variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        for line in log:
            match = OPENED.search(line)
            if match and not FOLDER.search(line):
                path = os.path.realpath(os.path.join(folder, match[1]))
                if any(path.startswith(f"{root}/") for root in roots) and os.path.isfile(path):
                    found.add(path)
    return found


def undeclared(test, roots):
    """What a test opens and neither declares nor names."""
    declared = {os.path.realpath(path) for path in [*test.declared(), *test.named_paths()]}
    return sorted(path for path in opened(test, [str(root) for root in roots])
                  if not any(path == own or path.startswith(f"{own}/") for own in declared))
