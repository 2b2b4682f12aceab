"""Decides which tests of a build have to run: those whose inputs differ from the inputs they last passed with.

A stamp is a file NAME.json that a test leaves in BUILD/stamps when it passes. It holds a digest of every input of the test:

- its command, its environment as CMake sets it, and its other properties;
- every file that these name: programs (with the shared libraries they load) and scripts;
- the files and folders of the property REQUIRED_FILES (sluice_inputs() in cmake/TestInputs.cmake);
- what all tests share: the variables of VARIABLES, the machine, the compiler and the options of the build, the
  environments that tools/bootstrap installed, and the launchers and tools of COMMANDS.

Files of the repository and of the build count by their content: a program that is linked anew with the same bytes is the
same input. Files of the system count by size and time. A test without REQUIRED_FILES has inputs that nobody declared: it
always runs.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess

from dependencies import DEPENDENCIES

# Variables that the program, its libraries, Python, launchers and sanitizers read; $SLUICE_SEED only by samples.
VARIABLES = re.compile(r"(SLUICE|OMP|KMP|GOMP|ATEN|ONEDNN|DNNL|MKL|OPENBLAS|TORCH|CUDA|NVIDIA|NCCL|GLOO|GTEST|LD|PYTHON|ASAN|UBSAN|"
                       r"TSAN|LSAN|HF|AWS|MALLOC|OMPI|SLURM|TRIAL|PYENV|LC)_|^(LANG|LANGUAGE|TZ|PATH|HOME|TMPDIR|GLIBC_TUNABLES)$")
SEED = "SLUICE_SEED"
# A test with this label draws a sample of cases, by $SLUICE_SEED.
SAMPLE = "sample"
# The whole table of which another test draws a sample.
TABLE = "table"
# What tests look for on a machine, and run or leave out.
COMMANDS = ("mpirun", "srun", "slurmctld", "ip", "unshare", "mount", "faketime", "strace", "gdb", "taskset", "g++", "git",
            "nvidia-smi", "prlimit", "timeout", "bash")
DEVICES = ("/dev/nvidiactl", "/dev/net/tun", "/dev/fuse", "/dev/kvm")
SETTINGS = ("/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/kernel/core_pattern", "/proc/driver/nvidia/version",
            "/proc/sys/vm/overcommit_memory")
CACHE_ENTRIES = re.compile(r"^(CMAKE_CXX_FLAGS\w*|CMAKE_BUILD_TYPE|SLUICE_(?:TORCH|CUDA|PYTHON|SANITIZE|UNITY|GLIBC)):", re.MULTILINE)


def digest_of(*parts):
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=16).hexdigest()


class Digests:
    """Digests of files and folders. A file is read again only when its size or times have changed. `roots`: the folders
    whose files count by content."""

    def __init__(self, roots):
        self.roots = [pathlib.Path(root).resolve() for root in roots]
        self.read = {}
        self.loaded = {}

    def is_ours(self, path):
        real = pathlib.Path(path).resolve()
        return any(real.is_relative_to(root) for root in self.roots)

    def of(self, path):
        """Of a file, or of all files in a folder; "absent" of what is not there."""
        path = pathlib.Path(path)
        if path.is_dir():
            return self.of_folder(path)
        try:
            return self.of_file(path)
        except FileNotFoundError:
            return "absent"

    def of_file(self, path):
        status = os.stat(path)
        if not self.is_ours(path):
            return digest_of(path, status.st_size, status.st_mtime_ns)
        known = (str(path), status.st_size, status.st_mtime_ns, status.st_ino)
        if known not in self.read:
            with open(path, "rb") as file:
                self.read[known] = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest() \
                    if hasattr(hashlib, "file_digest") else hashlib.blake2b(file.read(), digest_size=16).hexdigest()
        return self.read[known]

    def of_folder(self, folder):
        files = sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts and path.is_file())
        return digest_of(*(part for path in files for part in (path.relative_to(folder), self.of_file(path))))

    def of_libraries(self, program):
        """Of the shared libraries that a program would load; empty for what is no program."""
        with open(program, "rb") as file:
            if file.read(4) != b"\x7fELF":
                return ""
        known = self.of_file(program)
        if known not in self.loaded:
            said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
            paths = sorted(set(re.findall(r"(/\S+) \(0x", said)))
            self.loaded[known] = digest_of(*(part for path in paths for part in (path, self.of(path))))
        return self.loaded[known]


@dataclasses.dataclass
class Test:
    """A test as ctest lists it."""

    name: str
    command: list
    properties: dict

    def labels(self):
        return self.properties.get("LABELS", [])

    def declared(self):
        """Its declared inputs; None: nobody declared them."""
        return self.properties.get("REQUIRED_FILES")

    def named_paths(self):
        """What its command and its environment name that is there."""
        words = list(self.command)
        for entry in self.properties.get("ENVIRONMENT", []):
            words += entry.split("=", 1)[-1].split(":")
        return [word for word in words if word.startswith("/") and os.path.exists(word)]


def listed(build, arguments=()):
    """The tests that ctest would run."""
    said = subprocess.run(["ctest", "--show-only=json-v1", *arguments], cwd=build, capture_output=True, text=True, check=True)
    return [Test(entry["name"], entry.get("command", []), {own["name"]: own["value"] for own in entry["properties"]})
            for entry in json.loads(said.stdout)["tests"]]


def machine():
    """What of a machine decides whether tests pass, and which of them it can run."""
    processor = sorted({line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                        if line.startswith(("model name", "flags", "Features"))})
    memory = re.search(r"MemTotal: *(\d+)", pathlib.Path("/proc/meminfo").read_text())
    found = [platform.release(), platform.machine(), os.getuid(), os.cpu_count(), int(memory[1]) >> 20, *processor]
    found += [device for device in DEVICES if os.path.exists(device)]
    found += [pathlib.Path(path).read_text() for path in SETTINGS if os.path.exists(path)]
    for command in COMMANDS:
        place = shutil.which(command)
        status = os.stat(place) if place else None
        found += [command, place, status and status.st_size, status and status.st_mtime_ns]
    return digest_of(*found)


def compiler(build):
    """The compiler and the options of a build."""
    cache = pathlib.Path(build, "CMakeCache.txt")
    text = cache.read_text() if cache.exists() else ""
    lines = [line for line in text.splitlines() if CACHE_ENTRIES.match(line)]
    found = sorted(pathlib.Path(build, "CMakeFiles").glob("*/CMake*Compiler.cmake"))
    return digest_of(*lines, *(path.read_text() for path in found))


def installed():
    """The environments that tools/bootstrap made."""
    return digest_of(*(part for path in sorted(DEPENDENCIES.glob("*/complete*")) for part in (path, path.read_text())))


class Stamps:
    """The stamps of one build. The inputs of all tests together are read once, when this is made; `roots` as Digests'."""

    def __init__(self, build, roots):
        self.folder = pathlib.Path(build) / "stamps"
        self.digests = Digests(roots)
        variables = [f"{name}={value}" for name, value in sorted(os.environ.items()) if VARIABLES.match(name) and name != SEED]
        self.shared = {"the environment": digest_of(*variables), "the machine": machine(), "the compiler": compiler(build),
                       "what bootstrap installed": installed(), "the rules of stamps": self.digests.of(__file__)}

    def inputs(self, test):
        """{input: digest} of a test; None where nobody declared its inputs."""
        if test.declared() is None:
            return None
        found = {"the command": digest_of(test.command, *(f"{name}={value}" for name, value in sorted(test.properties.items())
                                                          if name != "COST"))}
        for path in dict.fromkeys([*test.named_paths(), *test.declared()]):
            if os.path.isdir(path) and not self.digests.is_ours(path):
                continue  # an environment of bootstrap's, or a temporary folder
            found[path] = self.digests.of(path)
            if os.path.isfile(path) and self.digests.is_ours(path):
                found[path] += self.digests.of_libraries(path)
        if SAMPLE in test.labels():
            found["the seed"] = os.environ.get(SEED, "")
        return found | self.shared

    def path(self, test):
        return self.folder / (test.name.replace("/", "__") + ".json")

    def read(self, test):
        """A test's stamp; None if there is none that can be read."""
        try:
            return json.loads(self.path(test).read_text())
        except (OSError, ValueError):
            return None

    def stands(self, test):
        """The stamp of a test that has no need to run, or None and why it has to."""
        stamp, inputs = self.read(test), self.inputs(test)
        if inputs is None:
            return None, "their inputs are not declared"
        if stamp is None:
            return None, "not passed yet"
        changed = [name for name in {**stamp["inputs"], **inputs} if stamp["inputs"].get(name) != inputs.get(name)]
        return (None, f"{', '.join(changed)} changed") if changed else (stamp, "")

    def write(self, test, inputs, result):
        """A passed test with the inputs that it had; `result`: what came of its cases."""
        self.folder.mkdir(exist_ok=True)
        part = self.path(test).with_suffix(".part")
        part.write_text(json.dumps({"inputs": inputs, **result}, indent=1))
        part.replace(self.path(test))

    def remove(self, test):
        self.path(test).unlink(missing_ok=True)
