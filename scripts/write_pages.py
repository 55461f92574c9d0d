"""Write the generated parts of pages: code map, labels, presets and experiments.

python -m scripts.write_pages
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynbatch.harness.planning.grid import list_experiment_names, read_experiment
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.records.files import replace_whole
from dynbatch.harness.values.paths import CONF_DIR, PACKAGE, ROOT
from tests.support.layers import LAYERS, MODULES, PACKAGES, imported_at_run_time, reachable

DOCS = ROOT / "docs"
END = "<!-- until here -->\n"


@dataclass(frozen=True, slots=True)
class MarkedPage:
    """Page with a generated part: the text between two marks.

    Attributes:
        script: name of the generating script.
        part: name of the part, if the script generates several parts of the page.
    """

    path: Path
    script: str
    part: str = ""

    @property
    def begin(self) -> str:
        """Mark before the part."""
        name = f": {self.part}" if self.part else ""
        return f"<!-- written by scripts/{self.script}.py{name} -->\n"

    @property
    def written(self) -> str:
        return self._read_text().partition(self.begin)[2].partition(END)[0].strip()

    def write(self, part: str) -> None:
        before, _, rest = self._read_text().partition(self.begin)
        after = rest.partition(END)[2]
        replace_whole(self.path, f"{before}{self.begin}\n{part.strip()}\n\n{END}{after}")

    def _read_text(self) -> str:
        return self.path.read_text(encoding="utf-8")


def to_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    first, *others = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return "\n".join([first, f"|{'---|' * len(head)}", *others])


# --- docs/map.md: directories and imports ---

ADDED = ("datasets", "harness/models", "harness/policies", "systems")  # extended by one file each
PREFIXES = [p.rstrip(".") for layer in LAYERS for p in layer if p not in PACKAGES]  # lowest first


def find_box(module: str) -> str | None:
    """Return the directory or file of the map that has a module; None for bare packages."""
    fits = [prefix for prefix in PREFIXES if f"{module}.".startswith(f"{prefix}.")]
    return _write_box(max(fits, key=len)) if fits else None


def _write_box(prefix: str) -> str:
    return prefix.removeprefix(f"{PACKAGE}.").replace(".", "/")


def list_boxes() -> list[str]:
    """Return all directories and files of the map, the lowest layer first."""
    there = {find_box(module) for module in MODULES}
    return [box for box in map(_write_box, PREFIXES) if box in there]


def find_imports() -> dict[str, set[str]]:
    """Return the directories that each directory imports at run time."""
    edges: dict[str, set[str]] = {name: set() for name in list_boxes()}
    for module in MODULES:
        source = find_box(module)
        targets = {find_box(name) for name in imported_at_run_time(module)}
        if source is not None:
            edges[source] |= {t for t in targets if t is not None and t != source}
    return edges


def reduce_edges(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the transitive reduction of a graph: the fewest edges with the same paths."""
    return {
        name: targets.difference(*(reachable(edges, target) for target in targets))
        for name, targets in edges.items()
    }


def draw_map() -> str:
    """Return the directories and their imports as a Mermaid diagram, which GitHub renders."""
    names = list_boxes()
    lines = ["```mermaid", "flowchart TB"]
    lines += [f'    {_name_node(box)}["{_write_path(box)}"]' for box in reversed(names)]
    edges = reduce_edges(find_imports())
    lines += [
        f"    {_name_node(source)} --> {_name_node(target)}"
        for source in reversed(names)
        for target in sorted(edges[source])
    ]
    lines += ["    classDef added stroke-width:4px"]
    lines += [f"    class {','.join(map(_name_node, ADDED))} added", "```"]
    return "\n".join(lines)


def _name_node(box: str) -> str:
    return box.replace("/", "_")


def _write_path(box: str) -> str:
    """Write the path of a directory with a final slash, or of a module with its suffix."""
    return f"{box}/" if (ROOT / box).is_dir() else f"{box}.py"


def list_folders() -> str:
    """Return a table of all directories, importers first; subdirectories follow their parent."""
    rows = []
    for box in reversed(list_boxes()):
        inner = sorted(
            str(path.parent.relative_to(ROOT))
            for path in (ROOT / box).rglob("__init__.py")
            if path.parent != ROOT / box
        )
        rows += [(f"`{_write_path(each)}`", _describe(each)) for each in (box, *inner)]
    return to_table(("directory", "contents"), rows)


def _describe(folder: str) -> str:
    """Return the summary in the docstring of a package or module, without its final period."""
    path = ROOT / folder / "__init__.py"
    text = (path if path.exists() else ROOT / f"{folder}.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text)) or ""
    return " ".join(docstring.partition("\n\n")[0].split()).rstrip(".")


# --- docs/systems.md, docs/presets.md, docs/pipeline.md: choices of conf/ ---

PRESETS = ("strategy", "model_rewrite")  # kinds of systems that are presets of the engine
# Switches of the execution, not of the strategy.
NO_PRESET = ("backend", "loop", "precision", "profile")
FIRST = "vertex"


def list_labels() -> str:
    """Return the label of every system in tables, with its name on the command line."""
    labels = sorted((system.label, system.name) for system in read_systems(CONF_DIR))
    return "; ".join(f"{label} `{name}`" for label, name in labels) + "."


def read_presets() -> dict[str, dict[str, object]]:
    """Return the options of every preset of the engine by name, the default engine first."""
    presets = [system for system in read_systems(CONF_DIR) if system.kind in PRESETS]
    presets.sort(key=lambda system: (system.name != FIRST, system.name))
    return {system.name: dict(system.options) for system in presets}


def tabulate_presets() -> str:
    """Return a row for each switch, with differences from the default engine in bold."""
    presets = read_presets()
    rows = [
        (f"`{switch}`", *(_format_switch(preset[switch], first) for preset in presets.values()))
        for switch, first in presets[FIRST].items()
        if switch not in NO_PRESET
    ]
    return to_table(("switch", *(f"`{name}`" for name in presets)), rows)


def _format_switch(value: object, first: object) -> str:
    word = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
    return word if value == first else f"**{word}**"


def tabulate_experiments() -> str:
    """Return a row for each file of conf/experiment."""
    contents = {name: read_experiment(name) for name in list_experiment_names()}
    rows = [
        (f"`{name}`", content["paper"], content["title"], f"`{_find_command(name, content)}`")
        for name, content in contents.items()
    ]
    return to_table(("experiment", "paper", "title", "command"), rows)


def _find_command(name: str, content: Mapping[str, Any]) -> str:
    """Return the `bench` command if there are trials to measure, otherwise that of the pipeline."""
    scales = [scale for scale in content["scales"].values() if isinstance(scale, dict)]
    measures = any(scale.keys() & {"blocks", "trials_of"} for scale in scales)
    return f"bench experiment={name}" if measures else f"snakemake draw_{name}"


PARTS: Mapping[MarkedPage, Callable[[], str]] = {
    MarkedPage(DOCS / "map.md", "write_pages", "imports"): draw_map,
    MarkedPage(DOCS / "map.md", "write_pages", "folders"): list_folders,
    MarkedPage(DOCS / "systems.md", "write_pages"): list_labels,
    MarkedPage(DOCS / "presets.md", "write_pages"): tabulate_presets,
    MarkedPage(DOCS / "pipeline.md", "write_pages"): tabulate_experiments,
}


def main() -> None:
    for page, build in PARTS.items():
        page.write(build())


if __name__ == "__main__":
    main()
