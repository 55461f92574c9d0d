"""Declaration of an experiment's tables and figures: the keys of a file of conf/experiment.

title: "Tree-LSTM: training time per epoch against hidden size"     # one line
paper: Cavs (Xu et al., USENIX ATC 2018), Fig. 8 (h)
compare:                          # groups that are never mixed; the first system is the base
  systems: [vertex, kind:framework]       # as in blocks: harness/planning/kinds.py
notes: [any further footnote]     # "LABEL: ..." or '"LABEL" ...' only with the system of that label
table: {...}                      # keys of TableDeclaration, or `kind`: a module of plots/tables
figure: {kind: curves, ...}       # a module of plots/figures; `also: [KIND]` draws further kinds
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from dynbatch.harness.errors import ConfigError, suggest_name
from dynbatch.harness.planning.grid import read_experiment
from dynbatch.harness.planning.kinds import read_selection
from dynbatch.harness.planning.yaml_files import list_choices
from dynbatch.harness.records.tidy import MEASURED, PER_INSTANCE_SUFFIX, QUANTITIES
from dynbatch.harness.values.paths import ROOT

SYSTEMS = "systems"
GROUP_TITLES = {"strategies": "strategies on one engine", SYSTEMS: "systems"}
DECLARED = "declared"  # the kind of a table without a module of its own
OVER = " over "
BASE, BEST_BASELINE, CEILING, MEAN = "base", "best_baseline", "ceiling", "mean"
GRAPH_FACTS = {"n_nodes": "nodes", "n_parameters": "parameters", "lower_bound": "lower bound"}
Valid = TypeVar("Valid")
PER_INSTANCE = ("instance_s", "construction_s", "computation_s", "moving_s")
SUFFIXES = {"tables": (".csv", ".md", ".tex", ".html"), "figures": (".csv", ".png", ".pdf")}


def check_name(file: str, noun: str, name: object, known: Collection[str]) -> None:
    if name not in known:
        close, choices = suggest_name(str(name), known), ", ".join(known)
        raise ConfigError(f"{file}: unknown {noun} {name!r}{close}; choose from {choices}")


def check_quantity(file: str, quantity: str) -> None:
    known = (*QUANTITIES, *MEASURED)
    check_name(file, "quantity", quantity.removesuffix(PER_INSTANCE_SUFFIX), known)


def validate(
    location: str, content: object, kind: type[Valid], module: str = "declaration"
) -> Valid:
    """Convert a value from a YAML file to a type.

    Args:
        module: module of plots that describes the value, for error messages.
    """
    try:
        return TypeAdapter(kind).validate_python(content)
    except ConfigError as error:
        raise ConfigError(f"{location}: {error}") from error
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join([location, *map(str, fault["loc"])])
        rule = fault["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        got = "" if fault["type"] in ("missing", "value_error") else f", got {fault['input']!r}"
        raise ConfigError(f"{place}: {rule}{got}; fix it (see plots/{module}.py)") from error


class Keys:
    """Base of nested dataclasses of table and figure options; unknown keys are rejected."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class PublishedTable(Keys):
    """Reference to the numbers of a paper.

    Attributes:
        model: model whose part of the table is used, if the table is split by model.
    """

    table: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """Declaration of a table that needs no module of its own.

    Attributes:
        rows: keys that head rows: keys of `bench`, `quantity` or `setting`.
        columns: keys that head columns, likewise; variants of a system share a column.
        values: label of each number, which is "QUANTITY" or "QUANTITY over SIDE". A side is base,
            best_baseline, ceiling or a system. Ratios are taken within rounds; ratios of times are
            speedups. In labels, `{base}` is the name of the base. A label `{strategies: LABEL}`
            shows the number in one comparison only.
        settings: selections of rows by label, for the key `setting`. A value may be a list.
        base: settings of the base; by default the first system of the comparison.
        extra: further rows: best_baseline and ceiling; mean, over the rows with the same first key;
            for counts n_nodes, n_parameters and lower_bound, which do not depend on the policy.
        epoch: instances of an epoch, by which times per instance are multiplied; may differ by
            setting.
        published: numbers of a paper next to ours: `table` (plots/published), `model` and settings.
        unmeasured: reason, by quantity, why all systems or some have no number of it here; their
            cells have the status "not measured", and the reason is a footnote. The quantity may be
            unknown here, so that only a paper has it.

    Raises:
        ConfigError: for an invalid declaration; `validate` adds the file to the message.
    """

    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    values: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    base: Mapping[str, Any] = field(default_factory=dict)
    extra: Sequence[str] = ()
    epoch: int | Mapping[str, int] = 1
    published: Mapping[str, Any] | None = None
    unmeasured: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rows or not self.values:
            raise ConfigError("a table needs rows and values; add them")
        labels = [label for label in self.values.values() if not isinstance(label, str)]
        groups = {"", *(group for label in labels for group in label)}
        n_shown = max(len(self.select_labels(group, "")) for group in groups)
        if n_shown > 1 and "quantity" not in (*self.rows, *self.columns):
            raise ConfigError(
                f"values has {n_shown} numbers for one cell; add quantity to rows or columns"
            )
        shown = [value.partition(OVER)[0] for value in self.values]
        for quantity in (name for name in shown if name not in self.unmeasured):
            check_quantity("values", quantity)
        for quantity in self.unmeasured:
            check_name("unmeasured", "quantity", quantity, self.values)
        for extra in self.extra:
            check_name("extra", "row", extra, (BEST_BASELINE, CEILING, *GRAPH_FACTS, MEAN))
        if self.published is not None and "table" not in self.published:
            raise ConfigError("published has no table; add table: NAME")

    def select_labels(self, group: str, base: str) -> dict[str, str]:
        """Return the label of each value that a comparison shows."""
        return {
            value: (label if isinstance(label, str) else label[group]).replace("{base}", base)
            for value, label in self.values.items()
            if isinstance(label, str) or group in label
        }


@dataclass(frozen=True, slots=True)
class Declaration:
    """Title, tables and figures of an experiment.

    Attributes:
        compare: systems of each comparison, measured or not; the first is the base.
        table: keys of the table as declared, with `kind`; empty without a table.
        figure: keys of the figure, likewise.
    """

    name: str
    title: str
    paper: str
    notes: tuple[str, ...] = ()
    compare: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    table: Mapping[str, Any] = field(default_factory=dict)
    figure: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return f"experiment/{self.name}.yaml"

    @property
    def figures(self) -> dict[str, str]:
        """Path of each figure by kind; names after the first end with the kind."""
        others = {kind: f"figures/{self.name}_{kind}" for kind in self.figure.get("also", ())}
        return {self.figure["kind"]: f"figures/{self.name}", **others} if self.figure else {}

    @property
    def stems(self) -> tuple[str, ...]:
        """Paths of tables and figures, without suffix, relative to the results directory."""
        groups = [f"_{group}" for group in self.compare] or [""]
        tables = [f"tables/{self.name}{group}" for group in groups] if self.table else []
        return (*tables, *self.figures.values())

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all files that are written, relative to the results directory."""
        drawn = [stem + suffix for stem in self.stems for suffix in SUFFIXES[stem.split("/")[0]]]
        return (f"artifacts/{self.name}.json", *drawn)

    @property
    def draws_mini_batch(self) -> bool:
        """True if drawing needs the dataset, to rebuild the counted graph."""
        return self.figure.get("kind") in ("graph", "state_machine")

    def read_options(self, part: str, kind: type[Valid]) -> Valid:
        """Return the keys of "table" or "figure" as a dataclass of this type."""
        content = {"table": self.table, "figure": self.figure}[part]
        names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
        options = {key: value for key, value in content.items() if key not in ("kind", "also")}
        for key in options:
            check_name(self.file, f"key of a {part}", key, sorted(names))
        return validate(f"{self.file}: {part}", options, kind, f"{part}s/{content['kind']}")

    def read_keys(self, part: str, **kinds: Any) -> list[Any]:
        """Return the values of the keys of "table" or "figure", all of which are required."""
        options: Any = self.read_options(part, make_dataclass("Options", kinds.items()))
        return list(vars(options).values())


def read_declaration(name: str, conf_dir: Path) -> Declaration:
    content = read_experiment(name, conf_dir)
    file = f"experiment/{name}.yaml"
    table, figure = (_read_part(file, part, content.get(part)) for part in ("table", "figure"))
    if not table and not figure:
        raise ConfigError(f"{file} has no table and no figure; add one (see plots/declaration.py)")
    notes = validate(f"{file}: notes", content.get("notes", []), list[str])
    compare, systems = {}, list_choices("system", conf_dir)
    groups = validate(f"{file}: compare", content.get("compare", {}), dict[str, Any])
    for group, listed in groups.items():
        check_name(file, "comparison", group, GROUP_TITLES)
        selection = read_selection(f"{file}, compare.{group}", listed, conf_dir)
        if not selection.entries or selection.entries[0].word:
            raise ConfigError(f"{file}: compare.{group}: expected the base system first; add it")
        compare[group] = selection.list_names()
        for system in compare[group]:
            check_name(file, f"system in compare.{group}", system, systems)
    title, paper = content["title"], content["paper"]
    declaration = Declaration(name, title, paper, tuple(notes), compare, table, figure)
    if table.get("kind") == DECLARED:
        base = declaration.read_options("table", TableDeclaration).base.get("system", [])
        for system in base if isinstance(base, list) else [base]:
            check_name(file, "system in base", system, systems)
    return declaration


def _read_part(file: str, part: str, content: Any) -> Mapping[str, Any]:
    """Return the keys of a table or figure with its kind; empty if there is none."""
    if content is None:
        return {}
    content = validate(f"{file}: {part}", content, dict[str, Any])
    first = content.get("kind", DECLARED if part == "table" else None)
    function = {"table": "def build(", "figure": "def draw("}[part]
    paths = sorted((ROOT / "plots" / f"{part}s").glob("*.py"))
    known = [path.stem for path in paths if f"\n{function}" in path.read_text(encoding="utf-8")]
    for kind in (first, *content.get("also", ())):
        check_name(file, f"kind of a {part}", kind, known)
    return {**content, "kind": first}
