"""The documentation keeps up: every module stands in the architecture page, the path through planning has every
header, no relative link or its anchor is broken, and messages, keys and options that pages explain exist."""

import os
import pathlib
import re

import module_table
import repository


def module_faults():
    rows = module_table.from_docs()
    programs = repository.lab_programs()
    paths = [path for path in repository.files("src/*/*", "lab/*/*") if path.parent not in programs]
    for home, module, *_ in {path.parts[:2] for path in paths}:
        if module not in rows:
            yield f"docs/architecture.md: no row for {home}/{module}"


def link_faults(path):
    text = re.sub(r"```.*?```", "", repository.read(path), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not (repository.ROOT / path.parent / target).exists():
            yield f"{path}: {target} does not exist"


def anchors(page):
    """What links may name in a page: its headings, as GitHub and MkDocs call them."""
    text = re.sub(r"^ *```.*?^ *```", "", repository.read(page), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)).lower().replace(" ", "-") for title in titles}


def anchor_faults(path):
    text = re.sub(r"```.*?```", "", repository.read(path), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text):
        page = path if not target else pathlib.PurePosixPath(os.path.normpath(path.parent / target))
        if "://" not in target and page.suffix == ".md" and (repository.ROOT / page).exists() and anchor not in anchors(page):
            yield f"{path}: {page} has no heading #{anchor}"


def reference_faults(path):
    """Comments that send the reader to a page of docs/ that isn't there."""
    for page in re.findall(r"\bdocs/[\w/.-]+\.(?:md|svg)", repository.read(path)):
        if not (repository.ROOT / page).is_file():
            yield f"{path}: {page} does not exist"


def path_faults():
    """Headers of what planning is made of that its path for newcomers leaves out."""
    page = repository.read(pathlib.Path("docs/planner.md"))
    path = page.split("## The files, one after the other")[1].split("\n## ")[0]
    for module in ("strategy", "cost", "schedule", "plan"):
        for header in repository.files(f"src/{module}/*.h"):
            if "test" not in header.stem and f"`{header.name}`" not in path:
                yield f"docs/planner.md: the path through planning leaves out {header}"


# Words of the field that the glossary translates into ours.
FIELD = ("FSDP", "ZeRO", "EP degree", "CP rank", "all-gather", "reduce-scatter", "KV block", "activation checkpointing",
         "gradient accumulation", "MFU", "micro-batch", "distributed optimizer", "Ulysses", "engine step", "rollout")


def glossary_faults():
    page = repository.read(pathlib.Path("docs/glossary.md"))
    for word in FIELD:
        if word not in page:
            yield f"docs/glossary.md: no row says what {word} is called here"
    for row in re.findall(r"^\|.*\|$", page, re.MULTILINE):
        if row.count("|") != 4 or "| |" in row:
            yield f"docs/glossary.md: a row has a word, its meaning and its name elsewhere (or –): {row}"


def program_text():
    """Everything that the program may print: its sources, with neighbouring literals joined."""
    sources = repository.files("src/*/*.cpp", "src/*/*.h", "cli/*.cpp", "cli/*.h", "cli/*/*.cpp", "tools/*.py")
    text = "\n".join(repository.read(source) for source in sources if "_test." not in source.name)
    return re.sub(r'"\s*"', "", text).replace('\\"', '"')


def message_faults(text):
    """Messages that docs/troubleshooting.md explains and the program doesn't have."""
    page = repository.read(pathlib.Path("docs/troubleshooting.md"))
    for cell in re.findall(r"^\| ([^|]*`[^|]*) \|", page, re.MULTILINE):
        for message in re.findall(r"`([^`]+)`", cell):
            for part in message.split("…"):
                if part.strip(" ,:") and part.strip() not in text:
                    yield f"docs/troubleshooting.md: the program prints no {part.strip()!r}"


def option_faults(text):
    """Keys and options that docs/coming_from.md names and the program doesn't have."""
    page = repository.read(pathlib.Path("docs/coming_from.md"))
    sections = set(re.findall(r"^\[(\w+)\]", repository.read(pathlib.Path("docs/formats.md")), re.MULTILINE))
    for cell in re.findall(r"^\|[^|]*\|([^|]*)\|", page, re.MULTILINE):
        for section, key in re.findall(r"`(\w+)\.(\w+)`", cell):
            if section in sections and f'"{key}"' not in text:
                yield f"docs/coming_from.md: there is no key {section}.{key}"
        for option in re.findall(r"(?<!\w)--[a-z][a-z-]+", cell):
            if f'{option}' not in text:
                yield f"docs/coming_from.md: there is no option {option}"


def main():
    text = program_text()
    pages = repository.files("*.md")
    sources = repository.files("*.h", "*.cpp", "*.cmake", "CMakeLists.txt", "*.py", "bootstrap", "Makefile")
    faults = [*module_faults(), *path_faults(), *glossary_faults(), *message_faults(text), *option_faults(text)]
    for page in pages:
        faults += [*link_faults(page), *anchor_faults(page)]
    for source in sources:
        faults += reference_faults(source)
    repository.finish(len(pages) + len(sources), faults)


if __name__ == "__main__":
    main()
