"""The wheel `sluice-train`: both programs, the shared libraries that Debian has for them, and the scripts that they start.

Libtorch is not in it. The wheel depends on the torch wheel that the programs were built with, and their run paths lead to
`torch/lib` beside them. The C and C++ runtimes are the system's: the newest symbol of glibc that anything in the wheel asks
for becomes the wheel's platform tag, so that pip refuses it where it would not start.
"""

import base64
import hashlib
import pathlib
import re
import shutil
import subprocess
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAME = "sluice_train"
# Libraries that every system that pip installs on has.
SYSTEM = re.compile(r"^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|util|pthread|resolv|gcc_s|stdc\+\+))\.so")
RUN_PATHS = ("lib", "../torch/lib", "../nvidia/cu13/lib")  # seen from the package's folder
SCRIPTS = ("added_tokens", "chat_errors", "chat_spans", "chat_template", "chat_tokens", "control_tokens", "conversations", "dataset_files", "hf_fetch", "hf_tokenize",
           "other_forms", "read_table", "rewards", "sluice_channel", "token_pieces", "track_run", "train_tokenizer")


def version(root=ROOT):
    """The project's: CMakeLists.txt has the one that everything else repeats."""
    return re.search(r"project\(sluice VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text()).group(1)


def pins(root=ROOT):
    """The wheels of tools/bootstrap, by name: what the programs were built and tested with."""
    text = (root / "tools/bootstrap").read_text()
    return dict(re.findall(r"\b([\w-]+)==([\w.]+)", "\n".join(re.findall(r"^(?:libtorch|tools)_wheels=\(.*?\)", text, re.M | re.S))))


def output(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def needed_libraries(program):
    """The shared libraries to take along, as the loader finds them here; those of libtorch's wheels are not among them."""
    found = {}
    for name, path in re.findall(r"^\s*(\S+) => (\S+)", output("ldd", program), re.M):
        if path == "not":
            raise SystemExit(f"{program} needs {name}, which is not here: run tools/bootstrap, and build again")
        if not SYSTEM.match(name) and "site-packages" not in path and not name.startswith("libgomp."):
            found[name] = pathlib.Path(path).resolve()
    return found


def copyright_file(library):
    """(package, copyright file) of the Debian package that has the library; None where there is none."""
    for path in (library, pathlib.Path(str(library).removeprefix("/usr"))):
        asked = subprocess.run(["dpkg-query", "--search", path], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            package = asked.stdout.split(":")[0]
            told = pathlib.Path("/usr/share/doc") / package / "copyright"
            return (package, told) if told.exists() else None
    return None


def newest_glibc(files):
    versions = {tuple(map(int, found.split(".")))
                for file in files for found in re.findall(r"GLIBC_([0-9]+\.[0-9]+)", output("objdump", "-T", file))}
    return max(versions)


def elf_files(package):
    return [*(package / "bin").iterdir(), *(package / "lib").iterdir()]


def lay_out(build, folder, patchelf):
    """The package's folder. Run paths lead from each file to the others and to libtorch."""
    package = folder / NAME
    shutil.copytree(ROOT / "packaging" / NAME, package, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("bin", "lib", "share/sluice", "licenses"):
        (package / part).mkdir(parents=True)
    libraries = {}
    for program in ("sluice", "sluice-torch"):
        libraries |= needed_libraries(build / program)
        shutil.copy(build / program, package / "bin" / program)
    for name, path in libraries.items():
        shutil.copy(path, package / "lib" / name)
        if told := copyright_file(path):
            shutil.copy(told[1], package / "licenses" / told[0])
    for file in elf_files(package):
        file.chmod(0o755)
        subprocess.run([patchelf, "--set-rpath", ":".join(f"$ORIGIN/../{path}" for path in RUN_PATHS), file], check=True)
    for script in SCRIPTS:
        shutil.copy(ROOT / "tools" / f"{script}.py", package / "share/sluice")
    for name in ("LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, package / "licenses")
    return package


def metadata(folder, tag):
    """The files of the wheel's dist-info folder."""
    known = pins()
    described = [
        "Metadata-Version: 2.1", "Name: sluice-train", f"Version: {version()}",
        "Summary: Trains, fine-tunes and serves Transformers on sequences of very different lengths",
        "License: Apache-2.0", "Requires-Python: >=3.10", "Classifier: Operating System :: POSIX :: Linux",
        f"Requires-Dist: torch=={known['torch']}", *(f"Requires-Dist: {name}>={known[name]}" for name in ("tokenizers", "jinja2")),
        f"Requires-Dist: pyarrow>={known['pyarrow'].split('.')[0]}; extra == 'tables'", "Provides-Extra: tables",
        "Description-Content-Type: text/markdown", "", (ROOT / "packaging/README.md").read_text()]
    info = folder / f"{NAME}-{version()}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("\n".join(described))
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: sluice\nRoot-Is-Purelib: false\nTag: {tag}\n")
    (info / "entry_points.txt").write_text(
        f"[console_scripts]\nsluice = {NAME}:sluice\nsluice-torch = {NAME}:sluice_torch\n")


def pack(folder, wheel):
    """A zip of the folder with the record of its files. The same files make the same bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    record = next(folder.glob("*.dist-info")) / "RECORD"
    rows = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in files:
            data, name = path.read_bytes(), path.relative_to(folder).as_posix()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(data)}")
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | (path.stat().st_mode & 0o777)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
        name = record.relative_to(folder).as_posix()
        archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), "\n".join([*rows, f"{name},,", ""]))


def make(build, out, scratch, patchelf, pages=None):
    """The wheel's path in `out`. `pages`: a folder to install below the environment's prefix (manual pages, completions)."""
    folder = scratch / "wheel"
    package = lay_out(build, folder, patchelf)
    major, minor = newest_glibc(elf_files(package))
    machine = output("uname", "-m").strip()
    tag = f"py3-none-manylinux_{major}_{minor}_{machine}"
    metadata(folder, tag)
    if pages:
        shutil.copytree(pages, folder / f"{NAME}-{version()}.data" / "data")
    wheel = out / f"{NAME}-{version()}-{tag}.whl"
    pack(folder, wheel)
    return wheel
