"""What must not be committed: paths of somebody's machine, merge markers, private keys, stray bytes; types whose
name means something else elsewhere; code that counts the ranks of a node; and words of Sluice's own for which the field has
others (docs/renamed.md), in pages, messages and identifiers."""

import pathlib
import re

import repository

FORBIDDEN = [
    (re.compile(r"(?<![\w.~}/-])/(?:home|root|Users|work|mnt|media)/[\w.-]+"), "a path of one machine"),
    (re.compile(r"^(?:<{7} |>{7} |={7}$)", re.MULTILINE), "a merge marker"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"), "a private key"),
    (re.compile(r"\r"), "a carriage return"),
    (re.compile(r"[ \t]+$", re.MULTILINE), "white space at the end of a line"),
]
LARGEST_BYTES = 1 << 20
# Fixtures keep other people's bytes as they are.
DATA = ("tests/*/fixtures/*", "tests/*/golden/*", "tests/fixtures/*", "tests/fixtures/*/*", "bench/results/*")


# Types that have one meaning each, and where it stands: a describing and a computing half are one meaning; and words
# too short to be one.
ONE_MEANING = {
    "Purpose": {"src/model/purpose.h"},
    "PlannedStep": {"src/session/planned_step.h"},
    "Method": {"src/plan/planner.h"},
    "Effort": {"src/plan/seeds.h"},
    "SchemeLoads": {"lab/published/greedy_dispatch.cpp"},
    "Part": {"src/model/layer.h", "src/layers/part.h"},
    "Pass": {"src/strategy/pass.h"},
    "Exchange": {"src/strategy/pipeline_micro_batch.h"},
    "Run": set(),
    "Ring": set(),
    "Window": set(),
    "Metric": {"src/report/step_record.h"},
    "BatchSource": {"src/corpus/batch_source.h"},
    "Loss": {"src/layers/loss.h", "src/transport/heartbeat.h"},
}
# How many ranks a node has is said by who reads a description of the machine; everybody else asks strategy::Topology.
DESCRIBES_NODES = {"src/config/keys.cpp", "src/config/run_config.h", "src/cost/analytic.cpp", "src/cost/calibration.cpp",
                   "src/session/planning_inputs.cpp", "src/session/run_planning.cpp", "src/session/run_planning.h",
                   "src/strategy/cluster.cpp", "src/strategy/cluster.h", "src/run/calibration.cpp"}
# Test helpers say of what nodes a test is.
TEST_HELPERS = re.compile(r"(^|/)test(ing|_\w+)\.(h|cpp)$|_test\.cpp$")
DEFINED = re.compile(r"^\s*(?:struct|class|enum class)\s+(\w+)\b[^;()]*\{", re.MULTILINE)


def word_faults(path):
    """Definitions under src/ and lab/ of types that mean something else elsewhere."""
    text = repository.read(path)
    for match in DEFINED.finditer(text):
        homes = ONE_MEANING.get(match[1])
        if homes is not None and str(path) not in homes:
            yield (f"{path}:{repository.line_of(text, match.start(1))}: {match[1]} means what "
                   f"{' and '.join(sorted(homes)) or 'docs/glossary.md'} says: choose another word")


def node_faults(path):
    """Code that counts the ranks of a node itself."""
    if str(path) in DESCRIBES_NODES or TEST_HELPERS.search(str(path)):
        return
    text = repository.read(path)
    if "gpus_per_node" in text:
        yield (f"{path}:{repository.line_of(text, text.index('gpus_per_node'))}: gpus_per_node: ask "
               "src/strategy/topology.h which ranks share a node")


# Words that had a meaning of their own here. In pages and messages:
OWN_WORDS = re.compile(r"\b(?:budd(?:y|ies)|speakers?|share groups?|learnt (?:tokens|turns)|narrow products?|behind steps? \d|epochs? of ranks"
                       r"|passes? of generation)\b")
# A unit of measure is one in pages, too; messages have none.
OWN_WORDS_IN_MESSAGES = re.compile(OWN_WORDS.pattern + r"|\bunits?\b|\b(?:says?|is|are|was|were|be) said\b|\bseats?\b")
# As a part of an identifier, as saidTokens or said_tokens.
OWN_PARTS = {"buddy", "buddies", "speaker", "speakers", "manner", "company", "said", "saying"}
IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*")
PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
TELL_HISTORY = re.compile(r"docs/(renamed\.md|decisions/|evaluation\.md)|CHANGELOG|src/config/renamed|data/")


def own_word_faults(path):
    """Words of before in a page, or in the messages and identifiers of a source."""
    text = repository.read(path)
    if path.suffix == ".md":
        for match in OWN_WORDS.finditer(text):
            yield f"{path}:{repository.line_of(text, match.start())}: '{match.group()}': docs/renamed.md has the field's word"
        return
    for match in LITERAL.finditer(text):
        if not text[text.rfind("\n", 0, match.start()) + 1:match.start()].lstrip().startswith(("//", "#include")):
            for word in OWN_WORDS_IN_MESSAGES.finditer(match[1]):
                yield f"{path}:{repository.line_of(text, match.start())}: a message says '{word.group()}': docs/renamed.md has the field's word"
    for match in IDENTIFIER.finditer(repository.code_only(text)):
        if own := OWN_PARTS.intersection(part.lower() for part in PART.findall(match.group())):
            yield f"{path}:{repository.line_of(text, match.start())}: {match.group()}: '{own.pop()}' was a word of ours: docs/renamed.md has the field's"


def faults_of(path, own_paths):
    content = (repository.ROOT / path).read_bytes()
    if len(content) > LARGEST_BYTES:
        yield f"{path}: {len(content)} bytes; make large files where they are needed"
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return
    for own in own_paths:
        if own in text:
            yield f"{path}:{repository.line_of(text, text.index(own))}: a path of this machine: {own}"
    if any(path.match(pattern) for pattern in DATA):
        return
    for pattern, what in FORBIDDEN:
        for match in pattern.finditer(text):
            yield f"{path}:{repository.line_of(text, match.start())}: {what}: {match.group().strip()!r}"


def main():
    # This checkout's own folder and home; short ones (a container's /root, /src) would match by chance.
    own_paths = [str(folder) for folder in (repository.ROOT, pathlib.Path.home()) if len(folder.parts) > 2]
    paths = repository.files("*")
    faults = [fault for path in paths for fault in faults_of(path, own_paths)]
    for path in repository.files("src/*/*.h", "src/*/*.cpp", "src/*/*/*.h", "src/*/*/*.cpp", "lab/*/*.h", "lab/*/*.cpp"):
        if not path.stem.endswith("_test"):
            faults += word_faults(path)
            faults += node_faults(path)
    for path in repository.files("docs/*.md", "docs/*/*.md", "README.md", "src/*/*.h", "src/*/*.cpp", "src/*/*/*.h", "src/*/*/*.cpp", "cli/*.h",
                                 "cli/*.cpp", "cli/*/*.h", "cli/*/*.cpp", "lab/study/*.h", "lab/study/*.cpp"):
        if not TELL_HISTORY.match(str(path)) and not path.stem.endswith("_test") and not path.stem.startswith("test_"):
            faults += own_word_faults(path)
    repository.finish(len(paths), faults)


if __name__ == "__main__":
    main()
