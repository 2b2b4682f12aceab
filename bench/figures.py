#!/usr/bin/env python3
"""Figures that pages quote from files of results: between the marks <!--figure NAME--> and <!--/--> stands what NAME is now.

    bench/figures.py          says which pages are behind their results; exit status 1 if any is
    bench/figures.py --write  brings them up to date

Pages that are results themselves are written by the command that makes them (lab/evaluation/paper_page.py and its like).
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]
MARK = re.compile(r"<!--figure ([^>]*?)-->(.*?)<!--/-->", re.DOTALL)


def transformers():
    """Tokens a second over those of the better transformers loop, least and most over lengths and rounds."""
    rows = json.loads((RESULTS / "transformers_throughput.json").read_text())["throughput"]
    ratios = [row["ratio_over_better"] for row in rows]
    return f"{min(of['lowest'] for of in ratios):.2f} to {max(of['highest'] for of in ratios):.2f} times"


def rivals(column):
    """The verdict's row of all rivals: 1 by kind, 2 as measured."""
    page = (ROOT / "docs" / "evaluation.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| **every rival"))
    return row.split("|")[1 + column].strip().strip("*")


def lost():
    """Scenarios in which some rival is faster, by kind."""
    page = (ROOT / "docs" / "evaluation.md").read_text()
    found = re.search(r"In (\d+) of (\d+) scenarios a rival is still faster", page)
    return f"{found[1]} of {found[2]}" if found else "none of the"


def flex_sp():
    """What the MILP's bound leaves to FlexSP's stand-in."""
    return re.search(r"^\d+ instances: (.*)$", (RESULTS / "flex_sp.md").read_text(), re.MULTILINE)[1]


def rows(page, title):
    """Cells of the table behind the first line of a page of results that begins so."""
    text = (RESULTS / f"{page}.md").read_text()
    table = re.search(rf"^{re.escape(title)}.*\n\n((?:\|.*\n)+)", text, re.MULTILINE)[1]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def table(cells, titles, align):
    return "\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in [titles, align, *cells]) + "\n"


def exchanges():
    """What a layer's forward exposes, of some of the lengths and lanes, without the backward."""
    shown = [("8192", "8"), ("16384", "16"), ("32768", "64"), ("131072", "16"), ("131072", "64"), ("1048576", "64")]
    found = {tuple(row[:2]): row[2:] for row in rows("exchanges", "32B, every query")}
    cells = [[f"{int(of[0]):,}", of[1], *("" if cell == "-" else number_of(cell) for cell in (*found[of][:3], found[of][-1]))] for of in shown]
    return table(cells, ["tokens", "lanes", "ring", "heads", "nested", "chosen"], ["---:"] * 5 + ["---"])


def number_of(cell):
    number = cell.split(" (")[0]
    return f"{int(number):,}" if number.isdigit() else number


def gathers():
    titles, _, *cells = rows("exchanges", "60 layers of")
    return table(cells, titles, ["---:"] * len(titles))


def lane_seconds(lanes):
    """Of 65,536 tokens on so many lanes."""
    titles, _, *cells = rows("lanes", "A lane holds")
    return next(row for row in cells if row[0] == "65536")[titles.index(lanes)]


def over_lane_bound():
    """How far plans of 4,096 sequences on 512 lanes are from their bound, at most."""
    titles, _, *cells = rows("lanes", "<1,1,512>")
    ratios = [float(row[titles.index("ours ÷ bound")].split()[0]) for row in cells if row[titles.index("sequences")] == "4096"]
    return f"{100 * (max(ratios) - 1):.1f} %"


FIGURES = {"transformers": transformers, "rivals by kind": lambda: rivals(1), "rivals as measured": lambda: rivals(2),
           "scenarios lost": lost, "FlexSP over its bound": flex_sp, "exchanges": exchanges, "gathers": gathers,
           "over the bound of lanes": over_lane_bound,
           **{f"lane-seconds of {lanes}": lambda lanes=lanes: lane_seconds(lanes) for lanes in ("8", "9", "16")}}


def brought_up_to_date(text):
    return MARK.sub(lambda match: f"<!--figure {match[1]}-->{FIGURES[match[1]]()}<!--/-->", text)


def main():
    behind = 0
    for page in PAGES:
        before = (ROOT / page).read_text()
        after = brought_up_to_date(before)
        if before == after:
            continue
        if sys.argv[1:] == ["--write"]:
            (ROOT / page).write_text(after)
            continue
        behind += 1
        for old, new in zip(MARK.findall(before), MARK.findall(after)):
            if old != new:
                print(f"{page}: {old[0]} is {new[1]}, not {old[1]}: bench/figures.py --write")
    sys.exit(1 if behind else 0)


if __name__ == "__main__":
    main()
