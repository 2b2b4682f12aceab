"""Pages of documentation and comments in code read straight: sentences begin with their subject and are short, and the three
pages that everybody reads first together take an hour."""

import itertools
import pathlib
import re
import sys

import repository

# Words that, at a sentence's beginning, stand for a noun which the reader only meets later.
LATE_SUBJECTS = {"what", "of", "who", "those", "which", "where", "that"}
LATE_SUBJECTS_PERCENT = 3
LONG_WORDS = 35
LONG_PERCENT = 8
READ_FIRST = ("architecture", "planning", "glossary")
READ_FIRST_WORDS = 8000
# Few sentences say little in per cent: a page may always have this many.
ALWAYS = 2

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"``[^`]+``|`[^`]+`")
# Lines that are no prose (headings, tables, formulas), and those that begin a paragraph of their own.
NO_PROSE = re.compile(r"\s*(?:#|\||</?\w)")
FORMULA = re.compile(r"    \S")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|cf|approx|Eq|Fig|Sec|etc)\.")
END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_]*[A-Z0-9`<])")
WORD = re.compile(r"[\w`$€%'’./+×<>-]*\w[\w`$€%'’./+×<>-]*")


def paragraphs(text):
    """The running text of a page: paragraphs and list items, without code, tables and headings."""
    text = COMMENT.sub(" ", FENCE.sub("\n\n", text))
    text = CODE.sub("`code`", LINK.sub(r"\1", text))
    paragraph = []
    for line in text.splitlines() + [""]:
        item = ITEM.match(line)
        if not paragraph and FORMULA.match(line) and not item:
            continue
        if not line.strip() or item or NO_PROSE.match(line):
            if paragraph:
                yield " ".join(paragraph)
            paragraph = []
        if item:
            paragraph = [line[item.end():].strip()]
        elif line.strip() and not NO_PROSE.match(line):
            paragraph.append(line.strip())


def sentences(text):
    for paragraph in paragraphs(text):
        yield from END.split(ABBREVIATION.sub(r"\1", paragraph))


def late_subject(sentence):
    first = WORD.search(sentence)
    return first is not None and first[0].lower().strip("'") in LATE_SUBJECTS


def is_long(sentence):
    return len(WORD.findall(sentence)) > LONG_WORDS


def limit(percent, total):
    return max(ALWAYS, total * percent // 100)


def comment_sentences(paths):
    return [sentence for path in paths for comment in repository.comments_of(repository.read(path)) for sentence in sentences(comment)]


def faults_of(path, spoken):
    kinds = (("begin with What, Of, Who, Those, Which, Where or That", late_subject, LATE_SUBJECTS_PERCENT),
             (f"have more than {LONG_WORDS} words", is_long, LONG_PERCENT))
    for what, is_fault, percent in kinds:
        found = [sentence for sentence in spoken if is_fault(sentence)]
        if len(found) > limit(percent, len(spoken)):
            shown = "; ".join(sentence[:60] for sentence in found[:3])
            yield (f"{path}: {len(found)} of {len(spoken)} sentences {what}, at most {limit(percent, len(spoken))} may: "
                   f"{shown} ...")


def code_files():
    return repository.files(*(f"{top}/**/*.{suffix}" for top in ("src", "cli", "lab", "bench") for suffix in ("h", "cpp", "cu")))


def folder_of(path):
    """A module of src and lab, or a folder at the top."""
    return path.parts[0] if path.parts[0] in ("cli", "bench") else "/".join(path.parts[:2])


def words_of(page):
    """All that stands between white space and has a letter or a digit: tables' bars are no words."""
    return sum(any(map(str.isalnum, word)) for word in repository.read(page).split())


def main():
    pages = repository.files("docs/*.md", "README.md", "CONTRIBUTING.md")
    pages = [page for page in pages if page.parent in (pathlib.PurePosixPath("docs"), pathlib.PurePosixPath("."))]
    spoken = {page: list(sentences(repository.read(page))) for page in pages}
    for folder, paths in itertools.groupby(sorted(code_files(), key=folder_of), folder_of):
        spoken[f"comments in {folder}"] = comment_sentences(paths)
    faults = [fault for each in spoken.items() for fault in faults_of(*each)]
    words = sum(words_of(f"docs/{name}.md") for name in READ_FIRST)
    if words > READ_FIRST_WORDS:
        faults.append(f"{', '.join(READ_FIRST)}: {words} words together; at most {READ_FIRST_WORDS}, an hour's reading")
    if "--list" in sys.argv:
        for each, own in spoken.items():
            print(f"{each}: {len(own)} sentences, {sum(map(late_subject, own))} late, {sum(map(is_long, own))} long")
    repository.finish(len(spoken), faults)


if __name__ == "__main__":
    main()
