"""A module includes only what the module table allows, libtorch only where the table says so, and nothing of src/
what stands in lab/. Files include each other in no circle, a header and its sources counted as one, and a module's
headers form no chain of more than eight."""

import re
import sys

import module_table
import repository

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)
TORCH = re.compile(r"^(ATen|torch|c10)/")
# A layer's values are read where they are derived from and where they are computed.
VALUES = {"model/layer.h", "model/layer_of.h", "model/derive.h", "model/make_parts.h"}
READS_VALUES = {"model", "layers"}
# An outline is what config.json says of usual decoders; others take a model::Model. Tests make small outlines.
OUTLINES = {"model/outline.h", "model/outline_sizes.h"}
READS_OUTLINES = {"src/config/keys.cpp", "src/config/config_file.cpp", "src/cost/measured_prices.cpp"}
TEST_FILE = re.compile(r"_test\.cpp$|/test_")
# Kernels of ops by what they run on. They do not know each other: operations choose between them.
BACKENDS = re.compile(r"ops/(cpu|cuda|libraries)/")
# Kernels of other modules are made of these.
KERNEL_PARTS = {"ops/cuda/kernels.h", "ops/cuda/kernel_parts.h"}


def table_faults(table, docs):
    """Where the table of CMakeLists.txt and the one of docs/architecture.md differ or break their rules."""
    for name, (torch, depends) in table.items():
        if name not in docs:
            yield f"CMakeLists.txt: module {name} has no row in docs/architecture.md"
            continue
        layer, docs_torch, docs_depends = docs[name]
        if torch != docs_torch:
            yield f"docs/architecture.md: {name}: the dagger disagrees with TORCH in CMakeLists.txt"
        if depends != docs_depends:
            yield (f"docs/architecture.md: {name} may include {sorted(docs_depends)}, "
                   f"but CMakeLists.txt says {sorted(depends)}")
        for other in depends & docs.keys():
            if docs[other][0] >= layer:
                yield f"docs/architecture.md: {name} (layer {layer}) uses {other} (layer {docs[other][0]})"
            if table[other][0] and not torch:
                yield f"CMakeLists.txt: {name} is free of libtorch but uses {other}"


def include_faults(path, table, allowed):
    """The includes of one file under src/ or lab/ that the table forbids."""
    source = repository.read(path)
    own = path.parts[1]
    if own not in table:
        yield f"{path}: module {own} is not in CMakeLists.txt"
        return
    for match in INCLUDE.finditer(source):
        place = f"{path}:{repository.line_of(source, match.start(2))}"
        quote, included = match.groups()
        module = included.split("/")[0]
        if TORCH.match(included) and not table[own][0]:
            yield f"{place}: {own} is free of libtorch but includes {included}"
        elif quote == '"' and "/" not in included:
            yield f"{place}: write the module: \"{own}/{included}\""
        elif included in VALUES and own not in READS_VALUES:
            yield f"{place}: {own} may not include {included}, which {sorted(READS_VALUES)} read: ask a model::Kind"
        elif (included in OUTLINES and own != "model" and str(path) not in READS_OUTLINES
              and not TEST_FILE.search(str(path))):
            yield f"{place}: {own} may not include {included}: take a model::Model"
        elif quote == '"' and module not in allowed[own]:
            yield f"{place}: {own} may not include {included} (its row lists {sorted(table[own][1])})"


def long_chains(paths, most=8):
    """Headers of one module that a reader would have to read one behind the other: at most `most`."""
    uses = {}
    for path in paths:
        name = str(path.relative_to(path.parts[0]))
        if path.suffix == ".h" and not path.stem.startswith("test_"):
            own = name.split("/")[0] + "/"
            uses[name] = [match[2] for match in INCLUDE.finditer(repository.read(path)) if match[2].startswith(own)]
    chains = {}

    def chain(name):
        if name not in chains:
            chains[name] = max(([name] + chain(other) for other in uses.get(name, ())), key=len, default=[name])
        return chains[name]

    for name in uses:
        if len(chain(name)) > most and not any(name in others for others in uses.values()):
            yield f"{len(chain(name))} headers in a chain, at most {most}: " + " -> ".join(chain(name))


def wall_faults(path):
    """Includes of ops' kernels from other modules, and of one kind of kernel from another."""
    if path.name.endswith("_test.cpp") or path.parts[0] != "src":
        return
    backend = BACKENDS.match(str(path.relative_to("src")))
    for _, included in INCLUDE.findall(repository.read(path)):
        other = BACKENDS.match(included)
        if not other or included in KERNEL_PARTS:
            continue
        if path.parts[1] != "ops":
            yield f"{path}: {included} is a kernel's: include the operation that chooses it"
        elif backend and backend[1] != other[1]:
            yield f"{path}: a kernel of {backend[1]} may not include {included}"


def file_circles(paths):
    """Circles of includes, each told once. A header and its sources are one: a.h, a.cpp, a_cuda.cpp."""
    def unit(path):
        return re.sub(r"(_cuda)?\.\w+$", "", str(path))

    files = {str(path.relative_to(path.parts[0])): unit(path) for path in paths if path.suffix == ".h"}
    uses = {}
    for path in paths:
        if not path.stem.endswith("_test"):
            included = (files.get(match[2]) for match in INCLUDE.finditer(repository.read(path)))
            uses.setdefault(unit(path), set()).update(filter(None, included))
    done = set()

    def visit(name, way):
        if name in way:
            if (ring := way[way.index(name):])[1:]:
                yield "files in a circle: " + " -> ".join(ring + [name])
        elif name not in done:
            for other in sorted(uses.get(name, ())):
                yield from visit(other, way + [name])
            done.add(name)

    for name in sorted(uses):
        yield from visit(name, [])


def main():
    table = module_table.from_cmake()
    try:
        allowed = module_table.reachable(table)
    except (KeyError, ValueError) as error:
        repository.finish(1, [f"CMakeLists.txt: {error}"])
    faults = list(table_faults(table, module_table.from_docs()))
    sources = repository.files("src/*/*.h", "src/*/*.cpp", "src/*/*.cu", "src/*/*/*.h", "src/*/*/*.cpp", "src/*/*/*.cu", "lab/*/*.h", "lab/*/*.cpp")
    programs = repository.lab_programs()
    sources = [path for path in sources if path.parent not in programs]
    lab = {path.parts[1] for path in sources if path.parts[0] == "lab"}
    for module in sorted({path.parts[1] for path in sources} - lab):
        faults += [f"CMakeLists.txt: {module} links {other} of lab/" for other in sorted(allowed[module] & lab)]
    for path in sources:
        faults += [*include_faults(path, table, allowed), *wall_faults(path)]
    faults += file_circles(sources)
    faults += long_chains(sources)
    repository.finish(len(sources), faults)


if __name__ == "__main__":
    sys.exit(main())
