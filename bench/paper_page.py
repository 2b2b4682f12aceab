"""docs/evaluation.md and its figures from bench/results/paper.jsonl (made by bench/paper.cpp)."""

import csv
import json
import pathlib
import statistics

import paper_figures as figures

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"
WORKLOADS = {(16384, 100000): "F1", (32768, 100000): "F2", (32768, 200000): "F3"}
RIVALS = ["megatron", "deepspeed", "hotspa"]
PUBLISHED_RIVALS = [name + "_table3" for name in RIVALS]
TITLES = {"sluice": "Sluice", "sluice_lanes": "Sluice, lanes", "megatron": "Megatron-LM", "deepspeed": "DeepSpeed",
          "hotspa": "HotSPa", "hydraulis": "Hydraulis", "hydraulis_first": "Hydraulis, printed ties",
          "static": "static, evened out", "flexsp": "FlexSP", "megatron_dcp": "Megatron dynamic CP"}
CORPORA = {"commoncrawl": "CommonCrawl", "github": "GitHub"}


def load(path):
    results = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        key = (row["figure"], row["model"], row["gpus"], row["corpus"], row["context"], row["tokens"])
        results.setdefault(key, {})[row["system"]] = row
    return results


def published():
    with open(ROOT / "data" / "published" / "evaluation.csv", newline="") as file:
        return {(row["place"], row["row"], row["column"]): row["value"] for row in csv.DictReader(file)}


def mean_s(row):
    return None if row is None or "mean_ns" not in row else row["mean_ns"] / 1e9


def seconds(row):
    value = mean_s(row)
    return "–" if value is None else f"{value:.2f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def scenarios(results, figure):
    return {key: systems for key, systems in results.items() if key[0] == figure}


def best_rival(systems, rivals):
    """Nothing before all rivals were simulated (one that does not fit counts as simulated)."""
    if any(name not in systems for name in rivals):
        return None, None
    times = {name: mean_s(systems[name]) for name in rivals}
    times = {name: time for name, time in times.items() if time is not None}
    return min(times.items(), key=lambda item: item[1]) if times else (None, None)


def ratio(above, below):
    return None if above is None or below is None else above / below


def shown(value):
    return "–" if value is None else f"{value:.2f}x"


def span(values):
    values = [value for value in values if value is not None]
    if not values:
        return "–"
    return f"{min(values):.2f}–{max(values):.2f}x, mean {statistics.mean(values):.2f}x"


def scenario_name(key):
    _, model, gpus, corpus, context, tokens = key
    return f"{CORPORA[corpus]} {model.upper()} {gpus} GPUs {WORKLOADS[(context, tokens)]}"


def figure_13(results):
    """The ratios of each scenario: rivals tuned here and as the paper tuned them, by Sluice and by Hydraulis."""
    rows, ratios, bars = [], [], []
    for key, systems in scenarios(results, "figure13").items():
        ours, lanes = mean_s(systems.get("sluice")), mean_s(systems.get("sluice_lanes"))
        theirs = mean_s(systems.get("hydraulis"))
        name, tuned = best_rival(systems, RIVALS)
        quoted_name, quoted = best_rival(systems, PUBLISHED_RIVALS)
        ours = min(time for time in (ours, lanes) if time is not None) if ours or lanes else None
        own = {"tuned": ratio(tuned, mean_s(systems.get("sluice"))), "tuned_lanes": ratio(tuned, lanes),
               "tuned_best": ratio(tuned, ours), "quoted": ratio(quoted, mean_s(systems.get("sluice"))),
               "quoted_lanes": ratio(quoted, lanes), "quoted_best": ratio(quoted, ours),
               "hydraulis": ratio(theirs, mean_s(systems.get("sluice"))), "hydraulis_lanes": ratio(theirs, lanes),
               "static": ratio(mean_s(systems.get("static")), ours), "flexsp": ratio(mean_s(systems.get("flexsp")), ours),
               "theirs_quoted": ratio(quoted, theirs), "theirs_tuned": ratio(tuned, theirs)}
        ratios.append(own)
        rows.append([scenario_name(key)] + [seconds(systems.get(system)) for system in (
            "sluice", "sluice_lanes", *RIVALS, *PUBLISHED_RIVALS, "hydraulis", "flexsp", "static")])
        bars.append((scenario_name(key), [own["quoted_best"], own["tuned_best"], own["theirs_quoted"]]))
    (FIGURES / "evaluation_13.svg").write_text(figures.bars(
        "Speed-up over the best of Megatron-LM, DeepSpeed and HotSPa",
        ["Sluice over published choices", "Sluice over choices tuned here", "Hydraulis over published choices"], bars,
        band=(1.32, 2.66, "published for Hydraulis: 1.32–2.66x")))

    def column(name):
        return [own[name] for own in ratios if own[name] is not None]

    summary = table(["seconds of … divided by those of …", "Sluice", "Sluice, lanes", "Hydraulis (simulated)", "published"], [
        ["best of three rivals, Table 3's configurations", span(column("quoted")), span(column("quoted_lanes")),
         span(column("theirs_quoted")), "1.32–2.66x (Hydraulis, measured)"],
        ["best of three rivals, tuned by enumeration here", span(column("tuned")), span(column("tuned_lanes")),
         span(column("theirs_tuned")), "–"],
        ["Hydraulis to the letter", span(column("hydraulis")), span(column("hydraulis_lanes")), "1", "–"],
        ["static, evened out (by the better of Sluice's two)", span(column("static")), "", "", "–"],
        ["FlexSP (by the better of Sluice's two)", span(column("flexsp")), "", "", "–"]])
    goals = []
    for name, title in (("quoted_best", "Table 3's configurations"), ("tuned_best", "configurations tuned here")):
        values = column(name)
        if values:
            goals.append(f"over {title} {sum(value >= 1.32 for value in values)} of {len(values)} scenarios reach 1.32x, "
                         f"mean {statistics.mean(values):.2f}x")
    ratio_rows = [[row[0]] + [shown(own[name]) for name in ("quoted", "quoted_lanes", "tuned", "tuned_lanes", "hydraulis",
                                                            "hydraulis_lanes", "theirs_quoted")]
                  for row, own in zip(rows, ratios)]
    return f"""Simulated so far: {len(rows)} of 36 scenarios, {len(column("hydraulis"))} of them with Hydraulis, {len(column("quoted"))}
with all of Table 3's configurations.

{summary}
Goals were 1.32x in every scenario and 2x on average: {'; '.join(goals)}.

![Speed-ups](figures/evaluation_13.svg)

Seconds a step (simulated; T3: the configuration of Table 3):

{table(["scenario", "Sluice", "lanes", "Megatron-LM", "DeepSpeed", "HotSPa", "Megatron-LM T3", "DeepSpeed T3",
        "HotSPa T3", "Hydraulis", "FlexSP", "static"], rows)}
The same as ratios: the best rival over Sluice with Table 3's configurations and with those tuned here, Hydraulis over
Sluice, and the best rival with Table 3's configurations over Hydraulis:

{table(["scenario", "T3 ÷ Sluice", "T3 ÷ lanes", "tuned ÷ Sluice", "tuned ÷ lanes", "Hydraulis ÷ Sluice",
        "Hydraulis ÷ lanes", "T3 ÷ Hydraulis"], ratio_rows)}"""


def table_3(results, paper):
    rows = []
    for key, systems in scenarios(results, "figure13").items():
        _, model, gpus, corpus, context, tokens = key
        if corpus != "commoncrawl" or tokens != 100000:
            continue
        place = f"LLaMA {model.upper()} {gpus} GPUs {'F1' if context == 16384 else 'F2&F3'}"
        for name in RIVALS:
            quoted = paper.get(("Table 3", place, TITLES[name]), "–").replace("|", ",")
            ours = systems.get(name, {}).get("configuration", "does not fit")
            rows.append([place, TITLES[name], ours, quoted])
    return table(["scenario (CommonCrawl)", "system", "chosen here", "published"], rows)


def figure_16(results):
    systems = next(iter(scenarios(results, "figure16").values()), {})
    steps = [("megatron", "Megatron-LM"), ("ablation_a", "(a) dispatch by Eq. 3, longest packs"),
             ("ablation_b", "(b) packing by Eq. 1"), ("ablation_c", "(c) one heterogeneous strategy"),
             ("ablation_d", "(d) a strategy each step: Hydraulis"),
             ("hydraulis_first", "Hydraulis, printed ties"), ("sluice", "Sluice"),
             ("sluice_lanes", "Sluice, lanes")]
    rows, bars, rates = [], [], []
    for name, title in steps:
        row = systems.get(name)
        if mean_s(row) is None:
            continue
        rate = 100000 / mean_s(row)
        spread = row["std_ns"] / row["mean_ns"]
        rows.append([title, f"{rate:,.0f}", f"{100 * spread:.0f} %", row["configuration"]])
        bars.append((title, [rate / 1000]))
        if name.startswith("ablation"):
            rates.append(rate)
    (FIGURES / "evaluation_16.svg").write_text(figures.bars("Thousand tokens a second", ["throughput"], bars))
    rise = "rise" if all(a <= b for a, b in zip(rates, rates[1:])) else "do not all rise"
    verdict = f"Steps (a) to (d) {rise}." if len(rates) == 4 else f"Only {len(rates)} of the four steps were simulated."
    return table(["step", "tokens/s", "deviation of steps", "configuration"], rows) + (
        f"\n![Ablation](figures/evaluation_16.svg)\n\n{verdict}\n")


def table_1(results, paper):
    systems = next(iter(scenarios(results, "table1").values()), {})
    columns = [("homogeneous", "homogeneous"), ("heterogeneous, no overlap", "heterogeneous without overlap"),
               ("heterogeneous, overlap", "heterogeneous with overlap"), ("sluice, no overlap", None),
               ("sluice, overlap", None)]
    rows = []
    for title, field in (("Propagation", "propagation_ns"), ("Optimization", "update_ns"),
                         ("O-P interaction (pull+push)", "exchange_ns"), ("End-to-end iteration", "all_ns")):
        cells = [title]
        for name, place in columns:
            value = systems.get(name, {}).get(field)
            cell = "–" if value is None else f"{value / 1e9:.2f} s"
            cells.append(cell + (f" ({paper[('Table 1', title, place)]} s)" if place else ""))
        rows.append(cells)
    return table(["part"] + [name for name, _ in columns], rows)


def table_4(results, paper):
    rows = []
    for key, systems in scenarios(results, "table4").items():
        _, model, gpus, _, _, tokens = key
        place = f"{model.upper()}, {gpus} GPUs, {tokens // 1000}K tokens/iter"
        hotspa = systems.get("hotspa", {})
        quoted = [paper.get(("Table 4", place, column), "–") for column in (
            "HotSPa switching time", "HotSPa iteration time incl. switching", "Hydraulis iteration time")]
        switched = mean_s(hotspa)
        own = hotspa.get("switch_ns", 0) / 1e9
        with_quoted = "–" if switched is None else f"{switched - own + float(quoted[0]):.2f}"
        rows.append([place, f"{own:.2f} ({quoted[0]})", f"{seconds(hotspa)} ({quoted[1]})", with_quoted,
                     f"{seconds(systems.get('hydraulis'))} ({quoted[2]})", seconds(systems.get("sluice"))])
    return table(["configuration", "HotSPa's switches, s", "HotSPa, s", "HotSPa with published switches, s",
                  "Hydraulis, s", "Sluice, s"], rows)


def figure_14(results):
    cases = scenarios(results, "figure14")
    names = ["sluice", "sluice_lanes", "megatron", "deepspeed", "hotspa", "hydraulis"]
    axes = [("GPUs", lambda key: key[4:] == (32768, 200000), lambda key: key[2]),
            ("context", lambda key: key[2] == 16 and key[5] == 200000, lambda key: key[4]),
            ("tokens", lambda key: key[2] == 16 and key[4] == 32768, lambda key: key[5])]
    parts = []
    for title, belongs, place in axes:
        chosen = sorted((key for key in cases if belongs(key)), key=place)
        rows = [[f"{place(key):,}"] + [seconds(cases[key].get(name)) for name in names] for key in chosen]
        lines = [(TITLES[name], [(str(place(key)), mean_s(cases[key].get(name))) for key in chosen]) for name in names]
        (FIGURES / f"evaluation_14_{title.lower()}.svg").write_text(figures.lines(f"Step time, s, by {title}", lines))
        parts.append(table([title] + [TITLES[name] for name in names], rows))
        parts.append(f"![By {title}](figures/evaluation_14_{title.lower()}.svg)\n")
    return "\n".join(parts)


def figure_15(results):
    systems = next(iter(scenarios(results, "figure15").values()), {})
    lines, parts = [], []
    for name in ("hydraulis", "sluice"):
        row = systems.get(name, {})
        if "times_ns" not in row:
            continue
        counts = {}
        for text in row["strategies"]:
            counts[text] = counts.get(text, 0) + 1
        lines.append((TITLES[name], [(str(step), ns / 1e9) for step, ns in enumerate(row["times_ns"])]))
        frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        parts.append(f"{TITLES[name]} took {len(counts)} strategies in {len(row['times_ns'])} steps:\n\n" + table(
            ["steps", "strategy"], [[count, f"`{text}`"] for text, count in frequent]))
    (FIGURES / "evaluation_15.svg").write_text(figures.lines("Step time, s, by step", lines))
    spreads = [[TITLES[name], *(f"{100 * value:.0f} %" for value in systems.get(name, {}).get("spreads", [])), quoted]
               for name, quoted in (("megatron", "36–65 % (measured)"), ("hydraulis", "2–10 % (measured)"),
                                    ("sluice", "–"))]
    parts.append("![Step times](figures/evaluation_15.svg)\n")
    parts.append("Between the slowest and the fastest pipeline, as a share of the slowest, in five steps:\n")
    width = max(len(row) for row in spreads) - 2
    parts.append(table(["system"] + [f"step {step}" for step in range(width)] + ["published"], spreads))
    return "\n".join(parts)


def corpora(results):
    rows = []
    for corpus, title in CORPORA.items():
        row = next(iter(results.get(("corpora", "", 0, corpus, 32768, 100000), {}).values()), None)
        if row is None:
            continue
        github = corpus == "github"
        rows += [[title, "mean length, cut at 32K", f"{row['mean_cut_32k']:.0f}", "–" if github else "517–672 (quoted)"],
                 [title, "median; 90 %; 99 %", f"{row['p50']}; {row['p90']}; {row['p99']}",
                  "1,083 (shipped source files); –; –" if github else "–"],
                 [title, "tokens in documents > 128K", f"{100 * row['tokens_above_128k']:.1f} %",
                  "16.2 % (measured)" if github else "–"],
                 [title, "tokens in documents > 256K", f"{100 * row['tokens_above_256k']:.1f} %",
                  "9.8 % (measured)" if github else "–"],
                 [title, "sequences > 15K in 1.6M tokens", f"{row['above_15k_in_1600k']:.1f}",
                  "–" if github else "at least one in each of 30 (measured)"],
                 [title, "sequences ≥ 32K in 1.6M tokens", f"{row['above_32k_in_1600k']:.1f}",
                  "–" if github else "none in some of 30 (measured)"]]
    return table(["corpus", "fact", "fitted law", "published"], rows)


def small_figures(results):
    parts = []
    seventeen = next(iter(scenarios(results, "figure17").values()), {}).get("lengths")
    if seventeen:
        longest = seventeen["longest"]
        (FIGURES / "evaluation_17.svg").write_text(figures.lines(
            "Longest sequence of a step of 1.6M tokens", [("tokens", [(str(i), v) for i, v in enumerate(longest)])]))
        parts.append(f"""**Figure 17** (longest sequence of 30 steps of 1.6M tokens, CommonCrawl; simulated from the fitted law): {min(longest):,} to
{max(longest):,} tokens; published: 15K to 32K (measured).

![Longest sequences](figures/evaluation_17.svg)
""")
    eighteen = next(iter(scenarios(results, "figure18").values()), {})
    rows = []
    for name, row in eighteen.items():
        times = [ns / 1e9 for ns in row["times_ns"]]
        if len(times) > 1:
            rows.append([name, len(times), f"{statistics.mean(times):.2f} s",
                         f"{100 * (max(times) - min(times)) / statistics.mean(times):.0f} %", "about 20 % (measured)"])
    if rows:
        parts.append("**Figure 18** (7B on 8 GPUs, only steps whose 100K tokens make four packs of 32K; simulated): "
                     "how far steps of as many tokens are apart.\n\n" + table(
                         ["layout", "steps", "mean", "longest − shortest", "published"], rows))
    twenty = next(iter(scenarios(results, "figure20").values()), {}).get("dispatch")
    if twenty:
        ratios = twenty["ratios"]
        parts.append(f"""**Figure 20** (32B, 64 GPUs, 200K tokens): step under greedy dispatch ÷ step under ideal dispatch, simulated:
{min(ratios):.3f} to {max(ratios):.3f}, mean {statistics.mean(ratios):.3f}; published: 0.9 to 1.1 (measured).
""")
    return "\n".join(parts)


def figure_19():
    rows = []
    with open(ROOT / "data" / "published" / "scheme_times.csv", newline="") as file:
        for row in csv.DictReader(file):
            if row["calibration"] != "a800-13b":
                continue
            tp, pp = int(row["tp"]), int(row["pp"])
            a, b, c = (float(row[name]) for name in ("a_ms", "b_ms", "c_ms"))
            rates = [1000 * length / (a * length**2 + b * length + c) / tp / pp * pp for length in (512, 2048, 8192)]
            rows.append([f"`<{tp},{pp},1>`", *(f"{rate / pp:,.0f}" for rate in rates)])
    return table(["scheme (13B)", "512 tokens", "2,048", "8,192"], rows)


def main():
    results = load(ROOT / "bench" / "results" / "paper.jsonl")
    paper = published()
    template = (ROOT / "bench" / "paper_page.md").read_text()
    sections = {"CORPORA": corpora(results), "FIGURE_13": figure_13(results), "TABLE_3": table_3(results, paper),
                "FIGURE_14": figure_14(results), "FIGURE_15": figure_15(results), "FIGURE_16": figure_16(results),
                "TABLE_1": table_1(results, paper), "TABLE_4": table_4(results, paper),
                "SMALL": small_figures(results), "FIGURE_19": figure_19()}
    for name, text in sections.items():
        template = template.replace("{{" + name + "}}", text.strip())
    (ROOT / "docs" / "evaluation.md").write_text(template)


if __name__ == "__main__":
    main()
