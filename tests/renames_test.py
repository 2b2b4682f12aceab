"""Names that Sluice had before are not used again in the same place: no option, key of a run configuration, metric, key of
JSON, schema, page, row of the glossary, public C++ name, file or folder has an old name of data/renames.tsv. Rows marked
"again" are exempt: the word has a new meaning."""

import csv
import pathlib
import re

import cpp_names
import repository

TABLE = pathlib.Path("data/renames.tsv")
# The sources of each kind of JSON.
JSON_SOURCES = {
    "corpus build --json": ("cli/corpus.cpp",),
    "corpus.unfinished": ("src/corpus/encoding.cpp",),
    "generate --out": ("cli/torch/generate.cpp",),
    "messages between ranks": ("src/generate/followers.cpp",),
    "messages between supervisors": ("src/membership/membership.cpp", "src/membership/message.cpp"),
    "metrics.jsonl": ("src/report/step_record.cpp",),
    "plan --serving --json": ("cli/plan_serving.cpp", "src/session/serving_plan.cpp"),
    "plan.json": ("src/strategy/step_plan_json.cpp",),
    "sluice.calibration/1": ("src/cost/calibration.cpp",),
    "sluice.checkpoint/3": ("src/rl/episode.cpp",),
    "sluice.cluster/1": ("src/strategy/cluster.cpp",),
    "sluice.simulation/1": ("lab/study/comparison.cpp",),
    "sluice.strategies/1": ("cli/propose.cpp",),
    "trace-STEP.json": ("src/graph/trace.cpp",),
    "watch --json": ("src/report/watch.cpp",),
}
CPP = ("type", "function", "field")
ANYWHERE = ("key", "schema", "page", "file", "folder", *CPP)
COMMANDS = {"plan_serving": "plan", "corpus_files": "corpus"}
METRICS = ("src/report/step_record.cpp", "src/watch/figures.cpp", "src/watch/detector.cpp", "src/serve/server.cpp")


def source(path):
    """C++ without comments."""
    return re.sub(r"//[^\n]*", "", repository.read(pathlib.Path(path)))


def block(commands):
    """The block of formats.md with a command's output."""
    return re.search(rf"<!--printed by: {commands}-->\n+```[a-z]*\n(.*?)```", repository.read(pathlib.Path("docs/formats.md")), re.DOTALL)[1]


def options():
    for path in repository.files("cli/*.cpp", "cli/torch/*.cpp"):
        for names in re.findall(r'(?:add_(?:option|flag)|bound|seconds)\(\s*"(!?--[^"]+)"', source(path)):
            for name in names.split(","):
                yield name.lstrip("!"), f"sluice {COMMANDS.get(path.stem, path.stem)}"


def keys():
    """Keys, and "key = word" of those with words to choose from."""
    section = ""
    for line in block("sluice keys config").splitlines():
        if found := re.match(r"(?:# )?\[+(\S+?)\]", line):
            section = found[1]
        elif found := re.match(r"(?:# )?(\w+) =(.*)", line):
            key = f"{section}.{found[1]}"
            yield key
            words = re.match(r".*?#\s*([^:]*)", found[2])
            yield from (f"{key} = {word.strip()}" for word in (words[1].split("|") if words else ()))


def metrics():
    for line in block("sluice keys metrics").splitlines():
        if found := re.match(r"(\w+)(?:  |$)", line):
            yield found[1], "metrics.jsonl"
            yield re.sub(r"_ms$", "_seconds", f"sluice_{found[1]}"), "Prometheus (train)"
    text = "".join(map(source, METRICS))
    for tag in re.findall(r'"(\w+/\w+)"', text):
        yield tag, "TensorBoard"
    for name in re.findall(r'"(sluice_\w+)"', text):
        yield name, "Prometheus (serve)"
    for causes in re.findall(r"kNames\[kCauses\] = \{([^}]*)\}", text):
        yield from ((f"alarms: metric = {cause.strip()}", "metrics.jsonl") for cause in causes.split(","))


def json_keys():
    for place, paths in JSON_SOURCES.items():
        for path in paths:
            text = source(path)
            for groups in re.findall(r'\{\s*"(\w+)",|\["(\w+)"\]|\w, "(\w+)"[,)]|\b(?:contains|at|find|has|value|emplace_back|object|integer)\(\s*"(\w+)"',
                                     text):
                yield "".join(groups), place
    owner = ""
    for line in repository.read(pathlib.Path("python/sluice/results.py")).splitlines():
        if found := re.match(r"class (\w+)", line):
            owner = found[1]
            yield owner, "python/sluice"
        elif found := re.match(r"    (?:def )?(\w+)(?::|\()", line):
            yield f"{owner}.{found[1]}", "python/sluice"
    planning = repository.read(pathlib.Path("python/sluice/planning.py"))
    for name, parameters in re.findall(r"^def (\w+)\((.*?)\) ->", planning, re.DOTALL | re.MULTILINE):
        yield from ((f"{name}({parameter})", "python/sluice") for parameter in re.findall(r"(\w+):", parameters))


def schemas():
    for path in repository.files("src/*/*.cpp", "cli/*.cpp", "cli/torch/*.cpp", "lab/*/*.cpp"):
        if not path.stem.endswith("_test"):
            yield from re.findall(r'"(sluice\.\w+/\d+)"', source(path))


def words():
    part = ""
    for line in repository.read(pathlib.Path("docs/glossary.md")).splitlines():
        if found := re.match(r"\*\*(.+)\*\*$", line):
            part = found[1]
        elif found := re.match(r"\| (.+?) \| ", line):
            yield found[1].replace("`", ""), part


def declared(kind):
    """Public types, functions or fields of the headers in src/."""
    for path in repository.files("src/*/*.h", "src/*/*/*.h"):
        yield from (name for of, name in cpp_names.of_header(repository.read(path)) if of == kind)


def used(kind):
    """The current names of a kind, as (name, place), or (name, None) where the place does not matter."""
    plain = {"key": keys, "schema": schemas, "page": lambda: map(str, repository.files("*.md", "*/*.md", "*/*/*.md")),
             "file": lambda: map(str, repository.files("*", "*/*", "*/*/*", "*/*/*/*")),
             "folder": lambda: (str(path.parent) for path in repository.files("*/*/*")),
             **{kind: lambda kind=kind: declared(kind) for kind in CPP}}
    if kind in plain:
        return {(name, None) for name in plain[kind]()}
    return set({"option": options, "metric": metrics, "json": json_keys, "word": words}[kind]())


def main():
    rows = list(csv.DictReader(repository.read(TABLE).splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    found = {kind: used(kind) for kind in {row["kind"] for row in rows}}
    faults = []
    for row in rows:
        old, new = (re.sub(r" \((?:of|in) [^)]*\)$", "", row[column]) for column in ("old", "new"))
        places = [None] if row["kind"] in ANYWHERE else row["where"].split("; ")
        for place in places:
            there = {re.sub(r" \((?:of|in) [^)]*\)$", "", name) if row["kind"] == "word" else name
                     for name, at in found[row["kind"]] if at == place}
            if old in there and row["note"] != "again":
                faults.append(f"{TABLE}: {row['kind']} {row['old']} ({place or row['where']}) is used, and is now {row['new']}")
            # Names of messages, traces and derived metrics are spelt in ways that this test does not read.
            if new not in there and row["kind"] in ("option", "key", "page", "word", "file", "folder", *CPP) and row["note"] != "joins":
                faults.append(f"{TABLE}: there is no {row['kind']} {row['new']} ({place or row['where']})")
    for kind, names in found.items():
        if not names:
            faults.append(f"tests/renames_test.py finds no {kind}")
    repository.finish(len(rows), faults)


if __name__ == "__main__":
    main()
