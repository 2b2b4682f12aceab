#!/usr/bin/env python3
"""Finds the data files of a Hugging Face data set's folder as `datasets.load_dataset` does: by its card, else by names.

Sluice sends (sluice_channel.py says where) a uint64 size and a JSON object: `name` (of the folder), `files` (what lies in it, relative, with
slashes), `texts` (those of README.md, .huggingface.yaml and dataset_infos.json that are there), `subset` ("": none is
chosen) and `split`. The answer is K, a uint64 size and a JSON object: `files` (of the split, in the
order of the rows), `format` (json, parquet, arrow, csv or text), `options` (of the card, that say how files are read),
`subset`, `rows` (how many the card says; null: it does not) and `left_out` (data that belongs to no split). Or it is X, a
uint64 size and a message for the user.
"""

import collections
import fnmatch
import json
import re

import sluice_channel as channel

# Endings that the library knows, by the format that they stand for; "other" formats hold no text that is read here.
FORMATS = {"json": ".json .jsonl .ndjson", "parquet": ".parquet .geoparquet .gpq", "arrow": ".arrow",
           "csv": ".csv .tsv", "text": ".txt",
           "other": ".3g2 .3gp .afa .aiff .apng .au .avi .bmp .caf .cif .conll .conllu .cur .dds .dib .ent .eps .eval .f4v .fa"
                    " .faa .fasta .fastq .ffn .fit .fits .flac .flv .fna .fq .frn .gb .gbk .gbr .genbank .gif .glb .gltf .grib"
                    " .h5 .hdf5 .icns .ico .im .j2c .j2k .jfif .jp2 .jpc .jpe .jpeg .jpf .jpg .jpx .lance .m4v .md .mkv .mmcif"
                    " .mov .mp3 .mp4 .mpeg .mpg .nii .ogg .opus .pbm .pcx .pdb .pdf .pgm .ply .png .pnm .ppm .ps .psd .raw .rgb"
                    " .sgi .stl .svx .tar .tga .tif .tiff .toml .tsfile .voc .vortex .wav .webm .webp .wma .wmv .xbm .xml .xpm"}
FORMAT_OF = {ending: form for form, endings in FORMATS.items() for ending in endings.split()}
# In the order of preference where as many files end so as otherwise.
FAVOURITES = (".parquet", ".lance", ".vortex", ".arrow", ".jsonl", ".json", ".csv")
DESCRIPTIONS = {"instruction.md", "latest_version_hint.json", "metadata.csv", "metadata.jsonl", "metadata.parquet", "task.toml"}
ALLOWED = {*FORMAT_OF, ".zip", ".idx", ".manifest", ".txn"}
IGNORED = {"README.md", "config.json", "dataset_info.json", "dataset_infos.json", "dummy_data.zip", "dataset_dict.json"}
SHARDS = "data/{}-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]*.*"
SPLIT_NAME = r"^\w+(\.\w+)*$"
WORDS = {"train": ["train", "training"], "validation": ["validation", "valid", "dev", "val"],
         "test": ["test", "testing", "eval", "evaluation"]}
# What a card may say of a configuration beside its files: without effect on the rows, or read here.
HARMLESS = {"config_name", "data_files", "data_dir", "default", "version", "description", "features", "drop_labels",
            "drop_metadata", "batch_size", "chunksize", "encoding", "use_threads", "block_size", "on_mixed_types"}
READ = {"csv": {"sep", "delimiter"}, "text": {"sample_by", "keep_linebreaks"}}
REFUSED = {"json": {"field", "encoding_errors", "newlines_in_values"}, "parquet": {"columns", "filters"},
           "text": {"encoding_errors"}, "arrow": set(),
           "csv": {"header", "names", "column_names", "index_col", "usecols", "prefix", "quotechar", "quoting", "escapechar",
                   "comment", "skiprows", "nrows", "na_values", "keep_default_na", "lineterminator", "thousands", "decimal",
                   "converters", "skipinitialspace", "skipfooter", "doublequote", "encoding_errors", "on_bad_lines",
                   "skip_blank_lines", "na_filter", "true_values", "false_values"}}


class BadInput(Exception):
    """A message for the user."""


def words_patterns():
    """What tells splits where no card does: by folders, by files, or all is for training."""
    separator = "[-._ 0-9]"
    folders = ("**/{0}/**", "**/{0}{1}*/**", "**/*{1}{0}/**", "**/*{1}{0}{1}*/**")
    files = ("**/{0}{1}*", "**/*{1}{0}{1}*")
    yield {"logs": ["**/*.eval"]}
    yield {"test": ["**/task.toml", "**/instruction.md"]}
    for forms in (folders, files):
        yield {split: [form.format(word, separator) for word in words for form in forms] for split, words in WORDS.items()}
    yield {"train": ["**"]}


def matches(parts, pattern):
    """Whether path components match those of a pattern, in which ** stands for any number of them."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(parts)
        return any(matches(parts[skipped:], pattern[1:]) for skipped in range(len(parts)))
    return bool(parts) and bool(fnmatch_compiled(pattern[0])(parts[0])) and matches(parts[1:], pattern[1:])


def fnmatch_compiled(pattern, compiled={}):
    if pattern not in compiled:
        compiled[pattern] = re.compile(fnmatch.translate(pattern)).match
    return compiled[pattern]


def endings(path):
    return ["." + part for part in path.rsplit("/", 1)[-1].split(".")[1:]]


def count_parts(path, is_special):
    return sum(map(is_special, path.split("/")))


def is_hidden(part):
    return part.startswith(".") and set(part) != {"."}


class Folder:
    """The files of a data set's folder, by patterns."""

    def __init__(self, name, files):
        self.name, self.files = name, sorted(files)

    def find(self, pattern, base="", allowed=ALLOWED):
        """In order of path; nothing where none matches. Hidden files and __folders are found if the pattern names them."""
        if "://" in pattern or pattern.startswith("/") or ".." in pattern.split("/"):
            raise BadInput(f"the card names '{pattern}', which lies elsewhere: copy these files and name them")
        pattern = "/".join(part for part in (base + "/" + pattern).split("/") if part not in ("", "."))
        wanted = pattern.split("/")
        if any("**" in part and part != "**" for part in wanted):
            raise BadInput(f"the card's pattern '{pattern}' has ** beside other characters: it stands alone between slashes")
        folders = pattern.rsplit("/", 1)[0] if "/" in pattern else ""

        def takes(path):
            file_folders, _, file = path.rpartition("/")
            return ((file not in IGNORED or file == wanted[-1])
                    and (not allowed or any(ending in allowed for ending in endings(path)))
                    and count_parts(file_folders, lambda part: part.startswith("__")) ==
                    count_parts(folders, lambda part: part.startswith("__"))
                    and count_parts(path, is_hidden) == count_parts(pattern, is_hidden))

        return [path for path in self.files if matches(path.split("/"), wanted) and takes(path)]

    def all_of(self, patterns, base=""):
        """The files of each split."""
        found = {}
        for split, wanted in patterns.items():
            found[split] = []
            for pattern in wanted:
                files = self.find(pattern, base)
                if not files and not any(magic in pattern for magic in "*?["):
                    raise BadInput(f"the card names '{pattern}', which is not there: fetch it, or set the card right")
                found[split] += files
        return found

    def patterns_by_name(self, base):
        """Of each split, told by names of files and folders, whatever their endings."""
        shards = self.find(SHARDS.format("*"), base, allowed=())
        splits = {re.search("(.+)" + SHARDS.format("").rsplit("/", 1)[1], path.rsplit("/", 1)[1]).group(1) for path in shards}
        for split in splits:
            if not re.match(SPLIT_NAME, split):
                raise BadInput(f"'{split}' is no name of a split: letters, digits, _ and . may stand in it: rename its files")
        if splits:
            known = [split for split in WORDS if split in splits]
            return {split: [SHARDS.format(split)] for split in known + sorted(splits - set(known))}
        for patterns in words_patterns():
            there = {split: wanted for split, wanted in patterns.items() if any(self.find(one, base, allowed=()) for one in wanted)}
            if there:
                return there
        raise BadInput("no data file is there: " + self.endings_there())

    def endings_there(self):
        counts = collections.Counter(ending for path in self.files for ending in endings(path)[-1:])
        return "its files end in " + ", ".join(sorted(counts)) if counts else "it is empty"


def format_of(files):
    """(format, options) by the most frequent ending; (None, {}) where none is known."""
    counts = collections.Counter((ending.lower(), path.rsplit("/", 1)[-1] in DESCRIPTIONS)
                                 for path in files for ending in endings(path))

    def rank(item):
        (ending, describes), count = item
        return (not describes, count, *(ending == favourite for favourite in FAVOURITES), ending)

    for (ending, _), _ in sorted(counts.items(), key=rank, reverse=True):
        if ending == ".zip":
            return "other", {}
        if ending in FORMAT_OF:
            return FORMAT_OF[ending], {"sep": "\t"} if ending == ".tsv" else {}
    return None, {}


def load_yaml(text, name):
    yaml = channel.package("yaml")

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node, deep=False):
            mapping = super().construct_mapping(node, deep=deep)
            if len(mapping) != len(node.value):
                raise BadInput(f"a key stands twice in {name}, before line {node.end_mark.line + 1}: keep one")
            return mapping

    try:
        return yaml.load(text, Loader=Loader)
    except yaml.YAMLError as error:
        raise BadInput(f"{name} has a header that is no YAML: {' '.join(str(error).split())}") from error


def card_of(texts):
    """What README.md's header and .huggingface.yaml say."""
    card = {}
    header = re.search(r"^(\s*---(?:\r\n|\r|\n))([\S\s]*?)((?:\r\n|\r|\n)---[ \t]*(\r\n|\n|$))",
                       texts.get("README.md", "").removeprefix("\ufeff"))
    for name, text in (("README.md", header.group(2) if header else ""),
                       (".huggingface.yaml", texts.get(".huggingface.yaml", ""))):
        said = load_yaml(text, name) if text else None
        if said is not None and not isinstance(said, dict):
            raise BadInput(f"{name} has a header that is no mapping: set it right")
        card |= said or {}
    return card


def patterns_of(data_files):
    """{split: patterns} of what a configuration says."""
    entries = [data_files] if isinstance(data_files, str) else data_files
    if isinstance(entries, list) and all(isinstance(entry, str) for entry in entries):
        return {"train": entries}
    patterns = {}
    for entry in entries if isinstance(entries, list) else [entries]:
        good = isinstance(entry, dict) and set(entry) == {"split", "path"} and isinstance(entry["path"], (str, list))
        if not good or not re.match(SPLIT_NAME, str(entry["split"])) or entry["split"] in patterns:
            raise BadInput(f"the card's data_files have the entry {entry}: write `split:` and `path:`, each split once")
        patterns[str(entry["split"])] = [entry["path"]] if isinstance(entry["path"], str) else entry["path"]
    return patterns


def configurations_of(card):
    said = card.get("configs") or []
    if not isinstance(said, list) or not all(isinstance(one, dict) and "config_name" in one for one in said):
        raise BadInput("the card's configs are no list of mappings with config_name: set it right")
    for one in said:
        if one.get("data_files") is not None:
            patterns_of(one["data_files"])
    return {str(one["config_name"]): one for one in said}


def infos_of(card, texts):
    """What is told of each configuration's splits."""
    infos = {}
    if texts.get("dataset_infos.json"):
        try:
            infos = dict(json.loads(texts["dataset_infos.json"]))
        except (ValueError, TypeError) as error:
            raise BadInput(f"dataset_infos.json is no JSON object: {error}") from error
        if len(infos) == 1:
            infos = {"default": next(iter(infos.values()))}
    said = card.get("dataset_info")
    for one in said if isinstance(said, list) else [said] if isinstance(said, dict) else []:
        infos[str(one.get("config_name", "default"))] = one
    return infos


def choose(configurations, infos, subset):
    """The name of the configuration to read; None where the card has none."""
    names = list(configurations) or ["default"]
    defaults = [name for name, one in configurations.items() if len(names) == 1 or name == "default" or one.get("default")]
    if len(defaults) > 1:
        raise BadInput(f"its card has several default configurations, {', '.join(defaults)}: leave `default: true` to one")
    if subset:
        if subset not in names:
            raise BadInput(f"it has no configuration '{subset}': choose from {', '.join(names)} with --subset")
        return subset if configurations else None
    if not defaults and len(infos) == 1:
        defaults = list(infos)
        if defaults[0] not in names:
            raise BadInput(f"its card has dataset_info of '{defaults[0]}' alone, but no such configuration: set it right")
        defaults = defaults if configurations else []
    if configurations and not defaults:
        raise BadInput(f"it has several configurations: choose from {', '.join(names)} with --subset")
    return defaults[0] if defaults else None


def files_of_splits(folder, configurations, chosen):
    """({split: files}, format, options) of the chosen configuration. The first one's files tell the format."""
    first = next(iter(configurations.values()), {})

    def resolve(configuration):
        base = configuration.get("data_dir") or ""
        said = configuration.get("data_files")
        return folder.all_of(patterns_of(said) if said is not None else folder.patterns_by_name(base), base)

    # Where the first configuration has no data_files, its data_dir is passed over for this.
    by_first = resolve(first if first.get("data_files") is not None and not first.get("data_dir") else
                       {"data_files": first.get("data_files")})
    formats = [format_of(files) for files in by_first.values()]
    if any(one != formats[0] for one in formats):
        raise BadInput(f"its splits have different formats: {', '.join(map(str, sorted({str(one[0]) for one in formats})))}")
    form, options = formats[0]
    if form is None:
        raise BadInput("no data file is there: " + folder.endings_there())
    if form == "other":
        raise BadInput(f"its files hold no text in JSON, Parquet, Arrow, CSV or lines: {folder.endings_there()}")
    if chosen is None:
        known = [ending for ending in (*FORMATS[form].split(), ".zip")]
        keeps = re.compile(".*(" + "|".join(map(re.escape, known)) + r")(\..+)?$").match
        return {split: list(filter(keeps, files)) for split, files in by_first.items()}, form, options
    for name, configuration in configurations.items():
        if name != chosen:
            configuration.get("data_files") is not None or resolve(configuration)
    return resolve(configurations[chosen]), form, options


def options_of(configuration, form, options):
    options = dict(options)
    for key, value in configuration.items():
        if key in READ.get(form, ()):
            options["sep" if key == "delimiter" else key] = value
        elif key in REFUSED[form]:
            raise BadInput(f"its card sets {key} of {form} files, which is not read here: convert the files to JSON Lines")
        elif key == "encoding" and str(value).lower() not in ("utf-8", "utf8"):
            raise BadInput(f"its card says that files are encoded in {value}: convert them to UTF-8")
    return options


def rows_of(info, splits, split):
    """How many rows the card says that a split has; None where it says nothing."""
    said = info.get("splits") if isinstance(info, dict) else None
    entries = said.values() if isinstance(said, dict) else said if isinstance(said, list) else []
    rows = {str(one.get("name")): one.get("num_examples") for one in entries if isinstance(one, dict)}
    if rows and set(rows) != set(splits):
        raise BadInput(f"its card tells of the splits {', '.join(sorted(rows))}, but its files are those of "
                       f"{', '.join(sorted(splits))}: fetch what is missing, or set dataset_info right")
    return rows.get(split)


def resolve(asked):
    folder = Folder(asked["name"], asked["files"])
    card = card_of(asked["texts"])
    configurations, infos = configurations_of(card), infos_of(card, asked["texts"])
    script = folder.name.rstrip("/").rsplit("/", 1)[-1] + ".py"
    if script in folder.files:
        raise BadInput(f"a script makes its rows ({script}), which is not run here: take the data set's converted files")
    chosen = choose(configurations, infos, asked["subset"])
    splits, form, options = files_of_splits(folder, configurations, chosen)
    options = options_of(configurations.get(chosen, {}), form, options)
    split = asked["split"]
    if split not in splits:
        raise BadInput(f"it has no split '{split}': choose from {', '.join(splits)} with --split")
    if not splits[split]:
        raise BadInput(f"no file belongs to its split '{split}': fetch it, or set the card right")
    rows = rows_of(infos.get(chosen or "default", {}), splits, split)
    taken = {path for files in splits.values() for path in files}
    left_out = [] if configurations else [path for path in folder.find("**") if path not in taken]
    return {"files": splits[split], "format": form, "options": options, "subset": chosen or "", "rows": rows,
            "left_out": left_out}


def main():
    channel.tell(b"K")
    asked = json.loads(channel.read_exactly(channel.read_size()))
    try:
        channel.tell(b"K", channel.packed(json.dumps(resolve(asked))))
    except channel.Lacking as error:
        channel.tell(channel.refusal(f"the data set {asked['name']}: {error}, which reads its card: name another with --python"))
    except BadInput as error:
        channel.tell(channel.refusal(f"the data set {asked['name']}: {error}"))


if __name__ == "__main__":
    channel.run(main)
