"""docs/long_context.md and its figure from bench/results/long_context.jsonl (made by lab/evaluation/long_context.cpp)."""

import csv
import json
import pathlib

import paper_figures as figures
from tables import table

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RANKS = 1024
GIB = 2**30
SCENARIOS = [("github", 2 << 20), ("github", 1 << 20), ("byted", 2 << 20), ("byted", 1 << 20)]
CORPORA = {"github": "GitHub", "byted": "Byted"}
LAYOUTS = {"tp1": "lanes of one GPU", "tp8": "lanes of a node, TP 8", "any": "any layout"}
STEPS = {"static_cp_rings": "static CP, rings alone", "static_cp": "static CP", "lanes": "dynamic lanes", "lanes_eq3": "dynamic lanes, offload by eq. 3",
         "lanes_offload": "dynamic lanes, selective offload", "balance": "dynamic lanes, balance",
         "balance_offload": "dynamic lanes, selective offload, balance", "sluice": "Sluice"}
RIVALS = {"megatron": "static, the best of TP × PP × CP", "megatron_dcp": "Megatron-LM dynamic CP",
          "fsdp": "FSDP with CP", "sluice": "Sluice",
          "least_work": "the work alone: no plan is faster"}
PUBLISHED = [("static_cp", "static DP and CP"), ("lanes", "dynamic communication"),
             ("lanes_offload", "selective offload"), ("balance_offload", "balance")]


def load(path):
    """Rows by (corpus, context, layout, system), by model; "": what lengths are."""
    models = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        models.setdefault(row["model"], {})[(row["corpus"], row["context"], row["layout"], row["system"])] = row
    return models


def title(scenario):
    corpus, context = scenario
    return f"{CORPORA[corpus]} {context >> 20}M"


class Page:
    def __init__(self, rows):
        self.rows = rows

    def seconds(self, scenario, layout, system):
        row = self.rows.get((*scenario, layout, system), {})
        return row["mean_ns"] / 1e9 if "mean_ns" in row else None

    def speedup(self, scenario, layout, system, over="tp1"):
        own, static = self.seconds(scenario, layout, system), self.seconds(scenario, over, "static_cp")
        return None if own is None or static is None else static / own

    def cell(self, scenario, layout, system, over=None):
        own = self.seconds(scenario, layout, system)
        if own is None:
            return "–"
        over = over or ("tp1" if layout == "any" else layout)
        return f"{own:.1f} s ({self.speedup(scenario, layout, system, over):.2f}x)"

    def systems(self):
        for layout in ("tp1", "tp8"):
            yield from ((layout, system, name) for system, name in STEPS.items())
        yield from (("any", system, name) for system, name in RIVALS.items())

    def speedups(self):
        rows = [[LAYOUTS[layout], name, *(self.cell(scenario, layout, system) for scenario in SCENARIOS)]
                for layout, system, name in self.systems()]
        note = "\nRows of any layout are held against static CP on lanes of one GPU.\n"
        return table(["lanes", "step", *map(title, SCENARIOS)], rows) + note

    def mixture(self):
        """On lanes of a node, for a GPU does not hold the model."""
        scenarios = [scenario for scenario in SCENARIOS if (*scenario, "tp8", "static_cp") in self.rows]
        rows = [[LAYOUTS[layout], name, *(self.cell(scenario, layout, system, "tp8") for scenario in scenarios)]
                for layout, system, name in self.systems() if layout != "tp1"]
        return table(["lanes", "step", *map(title, scenarios)], rows)

    def quoted(self):
        """{step of the published ablation: how many times faster than static CP, as text}"""
        with open(ROOT / "data" / "published" / "byte_scale.csv", newline="") as file:
            return {row["row"]: row["value"] for row in csv.DictReader(file) if row["place"] == "Ablation"}

    def published(self):
        quoted = self.quoted()
        byted, github = ("byted", 2 << 20), ("github", 2 << 20)
        rows = [[STEPS[system], quoted[name] + "x",
                 *(f"{self.speedup(scenario, layout, system, layout):.2f}x" for scenario in (byted, github)
                   for layout in ("tp1", "tp8"))] for system, name in PUBLISHED]
        rows.append(["remaining steps; here Sluice", quoted["remote data loading"] + "x",
                     *(f"{self.speedup(scenario, layout, 'sluice', layout):.2f}x" for scenario in (byted, github)
                       for layout in ("tp1", "tp8"))])
        return table(["step", "published, Byted", "Byted, one GPU a lane", "Byted, a node a lane",
                      "GitHub, one GPU a lane", "GitHub, a node a lane"], rows)

    def shares(self):
        rows = []
        for scenario in (SCENARIOS[0], SCENARIOS[2]):
            for layout, system, name in self.systems():
                row = self.rows.get((*scenario, layout, system))
                if row is None or "times_ns" not in row:
                    continue
                parts = [row[part + "_rank_ns"] for part in ("compute", "ring", "idle", "rest")]
                rows.append([title(scenario), LAYOUTS[layout], name, f"`{row['configuration']}`",
                             *(f"{100 * part / sum(parts):.0f} %" for part in parts),
                             f"{row['peak_bytes'] / GIB:.0f} GiB"])
        return table(["lengths", "lanes", "step", "configuration", "compute", "ring", "idle", "other", "held"], rows)

    def figures(self):
        """What the text quotes."""
        github = SCENARIOS[0]
        static, tuned = self.seconds(github, "tp1", "static_cp"), self.seconds(github, "any", "megatron")
        rings = self.seconds(github, "tp1", "static_cp_rings")
        seconds = {"STATIC": static, "RINGS": rings, "TUNED": tuned, "NODE_BALANCE": self.seconds(github, "tp8", "balance"),
                   "NODE_SAME": self.seconds(github, "tp8", "sluice"), "LEAST": self.seconds(github, "any", "least_work"), "BALANCE": self.seconds(github, "tp1", "balance_offload"),
                   "SAME": self.seconds(github, "tp1", "sluice"), "ANY": self.seconds(github, "any", "sluice"),
                   "OFFLOAD_BEFORE": self.seconds(SCENARIOS[3], "tp1", "lanes"),
                   "OFFLOAD_AFTER": self.seconds(SCENARIOS[3], "tp1", "lanes_offload")}
        quoted = {name: f"{value:.1f}" for name, value in seconds.items()}
        for name in ("BALANCE", "SAME", "ANY"):
            quoted["GITHUB_" + name] = f"{static / seconds[name]:.1f}"
        quoted["OVER_RINGS"] = f"{rings / seconds['SAME']:.1f}"
        quoted["GITHUB_TUNED"] = f"{tuned / seconds['ANY']:.1f}"
        quoted["MOST"] = f"{tuned / self.seconds(github, 'any', 'least_work'):.1f}"
        return quoted

    def lengths(self):
        facts = [("byted", "up to 4K", "up_to_4k", "documents", "80 %"),
                 ("byted", "128K or more", "from_128k", "documents", "1 %"),
                 ("byted", "128K or more", "from_128k", "tokens", "44.3 %"),
                 ("byted", "256K or more", "from_256k", "tokens", "37 %"),
                 ("byted", "2M", "from_2m", "documents", "0.05 %"),
                 ("byted", "2M", "from_2m", "tokens", "12.1 %"),
                 ("github", "128K or more", "from_128k", "tokens", "16.2 %"),
                 ("github", "256K or more", "from_256k", "tokens", "9.8 %")]
        rows = []
        for corpus, length, name, of, quoted in facts:
            law = self.rows[(corpus, 0, "", "lengths")]
            rows.append([CORPORA[corpus], length, of, f"{100 * law[name][of]:.2f} %", quoted])
        return table(["corpus", "length", "share of", "fitted law", "published"], rows)

    def figure(self):
        shown = [system for system in STEPS if system not in ("lanes_eq3", "static_cp_rings")]
        names = [STEPS[system] for system in shown]
        rows = [(f"{title(scenario)}, {LAYOUTS[layout]}",
                 [self.speedup(scenario, layout, system, layout) for system in shown])
                for scenario in SCENARIOS for layout in ("tp1", "tp8")]
        quoted, stands_for = self.quoted(), dict(PUBLISHED)
        measured = [float(quoted[stands_for[system]]) if system in stands_for else None for system in shown]
        rows.append(("Byted 2M, published (measured)", measured))
        return figures.bars("Times as fast as static CP of the same lanes (simulated)", names, rows)


def main():
    models = load(ROOT / "bench" / "results" / "long_context.jsonl")
    page = Page(models[""] | models["llama-7b"])
    (ROOT / "docs" / "figures" / "long_context.svg").write_text(page.figure())
    first = page.rows[(*SCENARIOS[0], "tp1", "static_cp")]
    sections = {**page.figures(), "FIGURE": "![Speed-up over static CP](figures/long_context.svg)",
                "SPEEDUPS": page.speedups(), "MIXTURE": Page(models["mixtral-8x7b"]).mixture(), "PUBLISHED": page.published(),
                "SHARES": page.shares(), "LENGTHS": page.lengths(), "STEPS": str(len(first["times_ns"])),
                "DEVICE": f"{first['device_bytes'] / GIB:.0f} GiB",
                "DOCUMENTS": f"{page.rows[('byted', 0, '', 'lengths')]['documents']:,}"}
    text = (ROOT / "lab" / "evaluation" / "long_context_page.md").read_text()
    for name, section in sections.items():
        text = text.replace("{{" + name + "}}", section.strip())
    (ROOT / "docs" / "long_context.md").write_text(text)


if __name__ == "__main__":
    main()
