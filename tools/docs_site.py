#!/usr/bin/env python3
"""Builds the documentation's site with MkDocs (`make docs`), strictly: a link to nothing, or to no heading, ends it.

    tools/docs_site.py --out build/site

Pages are laid out as they lie in the repository, with every file of it that they link, and mkdocs.yml's navigation on top.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def tracked(root):
    """The repository's files; in an unpacked archive all that do not lie in folders that builds make."""
    listing = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, text=True, check=False)
    if listing.returncode == 0:
        return [pathlib.Path(name) for name in listing.stdout.split("\0") if name and (root / name).is_file()]
    made = re.compile(r"(build|build-\w+|runs|corpora|dist)/")
    return [path for file in root.rglob("*") if file.is_file() and not made.match(str(path := file.relative_to(root)))]


def linked(root, page):
    """Files that a page's links and pictures name, relative to the root."""
    text = re.sub(r"^ *```.*?^ *```", "", (root / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)|(?:src|srcset)=\"([^\"]+)\"", text):
        path = pathlib.Path(os.path.normpath(page.parent / "".join(target)))
        if "://" not in "".join(target) and (root / path).is_file():
            yield path


def lay_out(root, folder):
    pages = [path for path in tracked(root) if path.suffix == ".md"]
    for path in {*pages, *(file for page in pages for file in linked(root, page))}:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, folder / path)
    return len(pages)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/site")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the repository")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        count = lay_out(root, folder / "pages")
        (folder / "mkdocs.yml").write_text(f"INHERIT: {root / 'mkdocs.yml'}\ndocs_dir: pages\nsite_dir: {arguments.out.resolve()}\n")
        # Not --quiet: with it MkDocs counts no warnings, and --strict passes.
        built = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", folder / "mkdocs.yml"],
                               check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"})
    if built.returncode:
        sys.exit("\n".join(line for line in built.stdout.splitlines() if not line.startswith("INFO")))
    print(f"{arguments.out}: {count} pages")


if __name__ == "__main__":
    main()
