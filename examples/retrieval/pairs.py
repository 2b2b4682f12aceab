#!/usr/bin/env python3
"""Writes pairs of a docstring and its function, of Python's standard library as it is installed.

Usage: pairs.py FOLDER

A docstring's first paragraph is the question, the function's source without its docstring and comments the answer. Every tenth
file of the library is held out, with all its functions. Pairs whose question or answer stands in an earlier pair are left out.
Writes, in the same order,
  train/questions.jsonl      train/functions.jsonl
  held_out/questions.jsonl   held_out/functions.jsonl
Only the standard library is used.
"""

import ast
import hashlib
import json
import pathlib
import re
import sys
import sysconfig
import warnings

# Tests, and what other programs wrote.
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "lib2to3", "pydoc_data"}
FEWEST_WORDS = 5  # of a question
MOST_CHARACTERS = 2000  # of a function: longer ones are classes in disguise


def sources(library):
    for path in sorted(library.rglob("*.py")):
        name = path.relative_to(library)
        if not LEFT_OUT.intersection(name.parts) and "config-" not in str(name):
            yield name, path


def question_of(function):
    """The first paragraph of the docstring on one line; nothing where it says too little."""
    text = ast.get_docstring(function)
    if text is None:
        return None
    paragraph = " ".join(re.split(r"\n\s*\n", text.strip())[0].split())
    return paragraph if len(paragraph.split()) >= FEWEST_WORDS else None


def source_of(function):
    """Nothing where the docstring is all there is."""
    function.body = function.body[1:]
    return ast.unparse(function) if function.body else None


def pairs_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (question := question_of(node)):
            source = source_of(node)
            if source is not None and len(source) <= MOST_CHARACTERS:
                yield question, source


def is_held_out(name):
    return hashlib.sha256(str(name).encode()).digest()[0] % 10 == 0


def write(folder, pairs):
    folder.mkdir(parents=True, exist_ok=True)
    for column, name in enumerate(("questions", "functions")):
        lines = (json.dumps({"text": pair[column]}) + "\n" for pair in pairs)
        (folder / f"{name}.jsonl").write_text("".join(lines))


def main(folder):
    seen, found = set(), {"train": [], "held_out": []}
    for name, path in sources(pathlib.Path(sysconfig.get_paths()["stdlib"])):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):  # files that show what Python refuses
            continue
        split = "held_out" if is_held_out(name) else "train"
        for pair in pairs_of(tree):
            if not seen.intersection(pair):
                seen.update(pair)
                found[split].append(pair)
    for split, pairs in found.items():
        write(folder / split, pairs)
    print(f"{len(found['train'])} pairs to learn from, {len(found['held_out'])} in files that are held out")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
