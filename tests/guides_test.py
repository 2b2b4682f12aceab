"""Guides keep up with the program: anchors that links name are headings, messages, keys and options that guides explain
exist, and the glossary has the field's words."""

import os
import pathlib
import re

import repository

# Words of the field that the glossary translates into ours.
FIELD = ("FSDP", "ZeRO", "EP degree", "CP rank", "all-gather", "reduce-scatter", "KV block", "activation checkpointing",
         "gradient accumulation", "MFU", "micro-batch", "distributed optimizer", "Ulysses", "engine step", "rollout")


def anchors(page):
    """The names of a page's headings in links, as GitHub and MkDocs make them."""
    text = re.sub(r"^ *```.*?^ *```", "", repository.read(page), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in plain}


def anchor_faults(path):
    text = re.sub(r"```.*?```", "", repository.read(path), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text):
        page = path if not target else pathlib.PurePosixPath(os.path.normpath(path.parent / target))
        if "://" in target or page.suffix != ".md" or not (repository.ROOT / page).exists():
            continue
        if anchor not in anchors(page):
            yield f"{path}: {page} has no heading #{anchor}"


def program_text():
    """Everything that the program may print: its sources, with neighbouring literals joined."""
    sources = repository.files("src/*/*.cpp", "src/*/*.h", "cli/*.cpp", "cli/*.h", "cli/*/*.cpp", "tools/*.py")
    text = "\n".join(repository.read(source) for source in sources if "_test." not in source.name)
    return re.sub(r'"\s*"', "", text).replace('\\"', '"')


def message_faults(program):
    """Messages that the page on troubleshooting explains and the program doesn't have."""
    page = repository.read(pathlib.Path("docs/troubleshooting.md"))
    for cell in re.findall(r"^\| ([^|]*`[^|]*) \|", page, re.MULTILINE):
        for message in re.findall(r"`([^`]+)`", cell):
            for part in message.split("…"):
                if part.strip(" ,:") and part.strip() not in program:
                    yield f"docs/troubleshooting.md: the program prints no {part.strip()!r}"


def option_faults(program):
    """Keys and options that the page for those who come from elsewhere names and the program doesn't have."""
    page = repository.read(pathlib.Path("docs/coming_from.md"))
    sections = set(re.findall(r"^\[(\w+)\]", repository.read(pathlib.Path("docs/formats.md")), re.MULTILINE))
    for ours in re.findall(r"^\|[^|]*\|([^|]*)\|", page, re.MULTILINE):
        for section, key in re.findall(r"`(\w+)\.(\w+)`", ours):
            if section in sections and f'"{key}"' not in program:
                yield f"docs/coming_from.md: there is no key {section}.{key}"
        for option in re.findall(r"(?<!\w)--[a-z][a-z-]+", ours):
            if option not in program:
                yield f"docs/coming_from.md: there is no option {option}"


def glossary_faults():
    page = repository.read(pathlib.Path("docs/glossary.md"))
    for word in FIELD:
        if word not in page:
            yield f"docs/glossary.md: no row says what {word} is called here"
    for row in re.findall(r"^\|.*\|$", page, re.MULTILINE):
        if row.count("|") != 4 or "| |" in row:
            yield f"docs/glossary.md: a row has a word, its meaning and its name elsewhere (or –): {row}"


def main():
    pages = repository.files("*.md")
    program = program_text()
    faults = [fault for page in pages for fault in anchor_faults(page)]
    faults += [*message_faults(program), *option_faults(program), *glossary_faults()]
    repository.finish(len(pages), faults)


if __name__ == "__main__":
    main()
