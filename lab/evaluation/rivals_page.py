"""The block of bench/results/rivals.md between its marks, from the results of lab/evaluation/rivals.cpp.

rivals_page.py [--results FILE] [--revision OF]; OF is the revision that the results were computed at, this tree's if absent.
"""

import argparse
import collections
import json
import pathlib
import re
import statistics
import sys

from paper_page import TITLES
from tables import table

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "bench" / "results" / "rivals.md"
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from harness import hardware, recorded_revision  # noqa: E402

MARKED = re.compile(r"(<!--made by lab/evaluation/rivals_page.py-->\n).*?(<!--/-->)", re.DOTALL)
EXCEPTION = 0.99  # a rival's time over Sluice's
NEAR = 0.997


def solved(rows):
    """How FlexSP's micro-batches fared as its MILP."""
    counts = [row["milp"] for row in rows if row.get("milp")]
    if not counts:
        return "–"
    asked, proved, improved = (sum(count[name] for count in counts) for name in ("asked", "proved", "improved"))
    seconds = ", ".join(f"{second:g}" for second in sorted({count["seconds"] for count in counts}))
    return f"{seconds} s each: {improved} of {asked} improved, {proved} proved"


def verdicts(results):
    rows = []
    for (rival, overlap), own in sorted(results.items()):
        ratios = sorted(ratio for row in own for ratio in row["ratios"])
        if ratios:
            faster = sum(ratio < EXCEPTION for ratio in ratios)
            figures = (ratios[0], ratios[len(ratios) // 20], statistics.median(ratios), statistics.mean(ratios))
            rows.append([TITLES[rival], overlap, len(ratios), *(f"{figure:.3f}" for figure in figures), faster, solved(own)])
    return table(["rival ÷ Sluice", "overlap", "batches", "least", "p5", "median", "mean", "more than 1 % faster",
                  "groups by its MILP"], rows)


def near(rows):
    """Draws in which a rival is faster by more than 1 - NEAR."""
    found = [[row["seed"], row["scenario"], TITLES[row["rival"]], row["overlap"], sum(ratio < NEAR for ratio in row["ratios"]),
              f"{min(row['ratios']):.3f}"] for row in rows if row["ratios"] and min(row["ratios"]) < NEAR]
    if not found:
        return f"No rival is more than {100 * (1 - NEAR):.1f} % faster on any batch.\n"
    return (f"Batches on which a rival is more than {100 * (1 - NEAR):.1f} % faster:\n\n" +
            table(["draw", "scenario", "rival", "overlap", "batches", "least"], found))


def step(row):
    return f"{row['ns'] / 1e9:.3f} s, {row['configuration']}, {row['strategy']}: {row['shares']}"


def exceptions(rows):
    """Each batch on which a rival is more than 1 - EXCEPTION faster, and the parts of both steps."""
    lost = sorted((ratio, row["seed"], batch, row["rival"], row["overlap"], row["theirs"][batch], row["ours"][batch])
                  for row in rows for batch, ratio in enumerate(row["ratios"]) if ratio < EXCEPTION)
    return "\n".join(f"- {ratio:.3f}: {TITLES[rival]}, {overlap}, draw {seed}, batch {batch}: {step(theirs)}; Sluice {step(ours)}"
                     for ratio, seed, batch, rival, overlap, theirs, ours in lost)


def block(rows, revision):
    by_rival = collections.defaultdict(list)
    for row in rows:
        by_rival[row["rival"], row["overlap"]].append(row)
    draws = len({row["seed"] for row in rows})
    batches = max(sum(len(row["ratios"]) for row in own) for own in by_rival.values())
    faster = sum(ratio < EXCEPTION for row in rows for ratio in row["ratios"])
    return "\n".join([f"{draws} draws, {batches} batches, at revision {revision}, {hardware()}; "
                      f"{faster or 'none'} of {sum(len(row['ratios']) for row in rows)} times of rivals more than 1 % shorter than Sluice's.",
                      "", verdicts(by_rival), near(rows), *([exceptions(rows), ""] if faster else [])])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build" / "rivals.jsonl")
    parser.add_argument("--revision")
    options = parser.parse_args()
    rows = sorted(map(json.loads, options.results.read_text().splitlines()), key=lambda row: (row["seed"], row["rival"], row["overlap"]))
    page = PAGE.read_text()
    if not rows or not MARKED.search(page):
        sys.exit(f"{options.results} has no results, or {PAGE} no block <!--made by lab/evaluation/rivals_page.py--> … <!--/-->")
    made = block(rows, options.revision or recorded_revision())
    PAGE.write_text(MARKED.sub(lambda match: match[1] + made + match[2], page))
    print(made)


if __name__ == "__main__":
    main()
