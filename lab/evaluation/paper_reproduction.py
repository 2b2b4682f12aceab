"""The paper's own system beside what was published of it: each printed figure, simulated, and their ratio."""

import statistics

CORPORA = ("commoncrawl", "github")


def systems_of(results, figure, corpus, **key):
    names = ("figure", "model", "gpus", "corpus", "context", "tokens")
    for found, systems in results.items():
        row = dict(zip(names, found))
        if row["figure"] == figure and row["corpus"] == corpus and all(row[name] == value for name, value in key.items()):
            return systems
    return {}


def mean_s(systems, name):
    return systems.get(name, {}).get("mean_ns", 0) / 1e9 or None


def part_s(systems, name, field):
    value = systems.get(name, {}).get(field)
    return None if value is None else value / 1e9


def switch_s(systems, name):
    value = systems.get(name, {}).get("switch_ns")
    return None if value is None else value / 1e9


def quotient(above, below):
    return None if above is None or not below else above / below


class Rows:
    """`cells`: a row of the table each, as text; `ratios`: by printed figure, simulated ÷ published on each corpus."""

    def __init__(self):
        self.cells = []
        self.ratios = []

    def add(self, place, what, published, simulate, unit="s", digits=2):
        """`simulate`: a corpus's value."""
        values = [simulate(corpus) for corpus in CORPORA]
        shown = ["–" if value is None else f"{value:.{digits}f}" for value in values]
        ratios = [quotient(value, published) for value in values]
        self.ratios.append(dict(zip(CORPORA, ratios)))
        self.cells.append([place, what, f"{published:.{digits}f} {unit}".strip(), *shown,
                           *("–" if ratio is None else f"{ratio:.2f}" for ratio in ratios)])


def add_table_1(rows, results, paper):
    columns = (("homogeneous", "homogeneous, no overlap"),
               ("heterogeneous without overlap", "heterogeneous, no overlap"),
               ("heterogeneous with overlap", "heterogeneous, overlap"))
    parts = (("Propagation", "propagation_ns"), ("Optimization", "update_ns"),
             ("O-P interaction (pull+push)", "exchange_ns"), ("End-to-end iteration", "all_ns"))
    for column, system in columns:
        for part, field in parts:
            rows.add("Table 1", f"{part.lower()}, {column}", float(paper[("Table 1", part, column)]),
                     lambda corpus: part_s(systems_of(results, "table1", corpus), system, field))

    def gain(corpus, field):
        systems = systems_of(results, "table1", corpus)
        return quotient(part_s(systems, columns[0][1], field), part_s(systems, columns[2][1], field))

    rows.add("Table 1", "propagation, homogeneous ÷ heterogeneous", 1.58, lambda corpus: gain(corpus, "propagation_ns"), "x")
    rows.add("Table 1", "step, homogeneous ÷ heterogeneous", 1.44, lambda corpus: gain(corpus, "all_ns"), "x")


def add_table_4(rows, results, paper):
    for model, gpus, tokens in (("7b", 32, 100000), ("32b", 32, 100000), ("32b", 64, 200000)):
        place = f"{model.upper()}, {gpus} GPUs, {tokens // 1000}K tokens/iter"
        quoted = {name: float(paper[("Table 4", place, name)]) for name in (
            "HotSPa switching time", "HotSPa iteration time incl. switching", "Hydraulis iteration time")}

        def systems(corpus):
            return systems_of(results, "table4", corpus, model=model, gpus=gpus, tokens=tokens)

        def hotspa(corpus):
            return "hotspa_table3" if "hotspa_table3" in systems(corpus) else "hotspa"

        rows.add("Table 4", f"Hydraulis, {place}", quoted["Hydraulis iteration time"],
                 lambda corpus: mean_s(systems(corpus), "hydraulis"))
        rows.add("Table 4", f"HotSPa, {place}", quoted["HotSPa iteration time incl. switching"],
                 lambda corpus: mean_s(systems(corpus), hotspa(corpus)))
        rows.add("Table 4", f"its switches, {place}", quoted["HotSPa switching time"],
                 lambda corpus: switch_s(systems(corpus), hotspa(corpus)))

        def gain(corpus):
            own = mean_s(systems(corpus), hotspa(corpus))
            switches = switch_s(systems(corpus), hotspa(corpus)) or 0
            return None if own is None else quotient(own - switches + quoted["HotSPa switching time"],
                                                     mean_s(systems(corpus), "hydraulis"))

        rows.add("Table 4", f"HotSPa with the published switches ÷ Hydraulis, {place}",
                 quoted["HotSPa iteration time incl. switching"] / quoted["Hydraulis iteration time"], gain, "x")


def candidate_gain(row):
    """How many times as long the candidate that holds most takes as the one that is taken most often, over the steps that
    both can run."""
    steps = row.get("candidates") or []
    if not steps:
        return None
    taken = statistics.mode(row["strategies"])
    always = [name for name in steps[0] if all(name in step for step in steps) and name != taken]
    if not always:
        return None
    safest = max(always, key=lambda name: statistics.mean(step[name] for step in steps))
    both = [step for step in steps if taken in step]
    return statistics.mean(step[safest] for step in both) / statistics.mean(step[taken] for step in both)


def estimate_error(row):
    pairs = list(zip(row.get("estimates_ns", []), row.get("times_ns", [])))
    return None if not pairs else 100 * statistics.mean(abs(real - planned) / real for planned, real in pairs)


def spread(row, pick):
    spreads = row.get("spreads")
    return None if not spreads else 100 * pick(spreads)


def add_figures(rows, results):
    def fifteen(corpus, name):
        return systems_of(results, "figure15", corpus).get(name, {})

    rows.add("Figure 15a", "S0 ÷ S3: the candidate that holds all, beside the one taken most often", 1.6,
             lambda corpus: candidate_gain(fifteen(corpus, "hydraulis")), "x")
    for name, title, least, most in (("megatron_table3", "Megatron-LM", 36, 65), ("hydraulis", "Hydraulis", 2, 10)):
        rows.add("Figure 15b", f"{title}, slowest − fastest pipeline, least of five steps", least,
                 lambda corpus: spread(fifteen(corpus, name), min), "%", 0)
        rows.add("Figure 15b", f"{title}, most of five steps", most,
                 lambda corpus: spread(fifteen(corpus, name), max), "%", 0)

    def sixteen(corpus):
        systems = systems_of(results, "figure16", corpus)
        return quotient(mean_s(systems, "megatron"), mean_s(systems, "ablation_a"))

    rows.add("Figure 16", "throughput of (a) ÷ that of Megatron-LM", 1.0, sixteen, "x")
    nineteen = systems_of(results, "figure19b", "commoncrawl").get("packing", {}).get("rows", [])
    slower = [row["packed_ns"] / row["apart_ns"] - 1 for row in nineteen if row["length"] == 2048]
    rows.add("Figure 19b", "two equal sequences in one micro-batch, PP 2: longer by", 25,
             lambda corpus: 100 * statistics.mean(slower) if slower and corpus == "commoncrawl" else None, "%", 0)


def add_appendices(rows, results):
    def one(figure, system, field, pick, corpus):
        values = systems_of(results, figure, "commoncrawl").get(system, {}).get(field)
        return pick(values) if values and corpus == "commoncrawl" else None

    for what, published, pick in (("least", 15000, min), ("most", 32768, max)):
        rows.add("Figure 17", f"longest sequence of 30 steps of 1.6M tokens, {what}", published,
                 lambda corpus: one("figure17", "lengths", "longest", pick, corpus), "tokens", 0)
    rows.add("Figure 18", "steps of as many tokens, longest − shortest, PP", 20, lambda corpus: one(
        "figure18", "PP", "times_ns", lambda times: 100 * (max(times) - min(times)) / statistics.mean(times), corpus), "%", 0)
    for what, published, pick in (("least", 0.9, min), ("most", 1.1, max)):
        rows.add("Figure 20", f"greedy ÷ ideal dispatch, steps, {what}", published, lambda corpus: one(
            "figure20", "dispatch", "rows", lambda found: pick(ratio for row in found for ratio in row["steps"]), corpus), "x", 3)


def add_figure_13(rows, results):
    def ratios(corpus):
        found = []
        for key, systems in results.items():
            if key[0] != "figure13" or key[3] != corpus:
                continue
            rivals = [mean_s(systems, name + "_table3") for name in ("megatron", "deepspeed", "hotspa")]
            known = [rival for rival in rivals if rival is not None]
            if known and mean_s(systems, "hydraulis"):
                found.append(min(known) / mean_s(systems, "hydraulis"))
        return found or None

    for what, published, pick in (("least", 1.32, min), ("most", 2.66, max)):
        rows.add("Figure 13", f"best of Table 3's rivals ÷ Hydraulis, {what} of the scenarios", published,
                 lambda corpus: pick(ratios(corpus)) if ratios(corpus) else None, "x")
    rows.add("Section 8.2", "HotSPa, 7B, 8 GPUs, F1, GitHub", 6.7, lambda corpus: None if corpus != "github" else mean_s(
        systems_of(results, "figure13", corpus, model="7b", gpus=8, context=16384), "hotspa_table3"))


def table_rows(results, paper):
    rows = Rows()
    add_figure_13(rows, results)
    add_table_1(rows, results, paper)
    add_table_4(rows, results, paper)
    add_figures(rows, results)
    add_appendices(rows, results)
    return rows
