"""Packs the folder that travels: programs, the libraries that a bare machine lacks, sources, and what building needs."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

PROGRAMS = ("sluice", "sluice-torch", "ops_test", "layers_test", "transport_test", "runtime_test", "device_layers_bench")
# Of Debian: what the sources include and link, for a build where nothing of it is installed.
PACKAGES = ("libbenchmark-dev", "libbenchmark1debian", "libboost-dev", "libboost1.74-dev", "libbz2-1.0", "libbz2-dev", "libcli11-dev",
            "libfmt-dev", "libfmt9",
            "libgloo-dev", "libgmock-dev", "libgtest-dev", "libpkgconf3", "libsentencepiece-dev", "libsentencepiece0",
            "libspdlog-dev", "libspdlog1.10", "libssl-dev", "libssl3", "libtomlplusplus-dev", "libtomlplusplus3",
            "libxxhash-dev", "libzstd-dev", "libzstd1", "nlohmann-json3-dev", "pkgconf-bin", "zlib1g", "zlib1g-dev")
PACKAGE_FILES = re.compile(r"/usr/(include|bin|share/(cmake|pkgconfig))/|(/usr)?/lib/[^/]*/([^/]*\.so[.0-9]*$|cmake/|pkgconfig/|"
                           r"lib(gtest|gmock|benchmark)[a-z_]*\.a$)")
# Every machine's own, or PyTorch's.
SYSTEM_LIBRARIES = re.compile(r"^(ld-linux|linux-vdso|lib(c|m|dl|rt|util|pthread|gcc_s|stdc\+\+|gomp)\.so)")
MOST_BYTES = 60 << 20


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def carried_libraries(program):
    """(name, path) of shared libraries that the program loads from the system's folders."""
    for line in output("ldd", str(program)).splitlines():
        found = re.match(r"\s*(\S+) => (/\S+)", line)
        if found and not SYSTEM_LIBRARIES.match(found[1]) and "site-packages" not in found[2]:
            yield found[1], pathlib.Path(found[2])


def package_files():
    for package in PACKAGES:
        try:
            listed = output("dpkg", "-L", package).splitlines()
        except (OSError, subprocess.CalledProcessError):
            sys.exit(f"gpu_kit: package {package} is not installed here: run tools/bootstrap")
        yield from (pathlib.Path(line) for line in listed
                    if PACKAGE_FILES.match(line) and pathlib.Path(line).is_file())


def carry_file(path, target):
    """A file of a package. Links lead to a file beside them, whatever way they take here."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        target.symlink_to(pathlib.Path(os.readlink(path)).name)
    else:
        shutil.copy(path, target)


def carry_cudnn_frontend(folder):
    """Headers that `tools/bootstrap` fetched; without them the programs built there leave attention to libtorch."""
    deps = pathlib.Path(os.environ.get("SLUICE_DEPS", pathlib.Path.home() / ".cache" / "sluice"))
    headers = deps / "cudnn-frontend" / "include"
    if not (headers / "cudnn_frontend.h").exists():
        sys.exit(f"gpu_kit: {headers} lacks the headers of cuDNN's frontend: run tools/bootstrap")
    shutil.copytree(headers, folder / "deps" / "cudnn-frontend" / "include")


def gather(root, build, folder):
    (folder / "programs").mkdir()
    (folder / "lib").mkdir()
    for name in PROGRAMS:
        built = build / name
        if not built.exists():
            sys.exit(f"gpu_kit: {built} is not built: run make gpu-kit")
        subprocess.run(["strip", "-o", folder / "programs" / name, built], check=True)
        for library, path in carried_libraries(built):
            shutil.copy(path, folder / "lib" / library)
    for file in output("git", "-C", str(root), "ls-files").splitlines():
        if not (root / file).is_file() or file.startswith("docs/figures/"):
            continue
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / file, folder / file)
    carry_cudnn_frontend(folder)
    for path in package_files():
        # /lib is /usr/lib by another name.
        carry_file(path, folder / "prefix" / "usr" / path.relative_to("/usr" if path.is_relative_to("/usr") else "/"))


def pack(root, build, out):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        gather(root, build, folder)
        out.mkdir(exist_ok=True)
        with tarfile.open(out / "kit.tar.xz", "w:xz") as archive:
            for entry in sorted(folder.iterdir()):
                archive.add(entry, entry.name)
    for tool in sorted((root / "tools").glob("gpu_kit*")):
        shutil.copy(tool, out / tool.name)
    size = sum(file.stat().st_size for file in out.iterdir() if file.is_file())
    print(f"gpu_kit: {out} holds {size / (1 << 20):.1f} MiB")
    return 0 if size <= MOST_BYTES else f"gpu_kit: that is more than {MOST_BYTES >> 20} MiB"
