"""How an artefact is shown: the keys of conf/experiment/<name>.yaml that the grid leaves to us.

draw: plots.figures.curves     # a module of this package with the function make
quantities: [epoch_s]            # see plots/numbers/points.py; a table adds "..._speedup"
axis: batch_size                 # the key of the grid that x counts
axis_label: batch size (instances)
epoch: {n_instances: 8544, words: the 8544 trees of SST's training split}
compare:                         # never mixed; a table divides by its first system, a name
  strategies: [vertex, cavs]
  systems: [vertex, kind:framework]   # as in blocks: harness/planning/kinds.py
published: {table: cavs_short_table1, model: tree_lstm}   # or null
notes: [any further footnote]

What is not a quantity against an axis gives draw, notes, compare where it compares systems, and in
place of all the others
show: {...}                      # keys of its own; see the module that draws it
epoch may be left out where no quantity is one of an epoch (throughput).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.planning.conf_files import choices_of
from harness.planning.grid import read_experiment
from harness.planning.kinds import read_selection
from harness.values.places import ROOT
from plots.numbers.published import Published, read_published
from plots.numbers.series import GROUP_TITLES

REQUIRED = ("draw",)
REQUIRED_OF_CURVES = ("quantities", "axis", "axis_label", "compare")
WITHOUT_EPOCH = frozenset({"throughput"})  # quantities that are of no epoch
PEERS = "plots.tables.peers"
FIGURE_SUFFIXES = (".pdf", ".png", ".csv")
TABLE_SUFFIXES = (*FIGURE_SUFFIXES, ".tex", ".md", ".html")


@dataclass(frozen=True, slots=True)
class Presentation:
    """What is drawn, on which axis, and which systems may stand beside each other.

    compare: all that a comparison selects; Artefact.compare has those of them that are measured.
    """

    name: str
    title: str
    paper: str
    draw: str
    notes: tuple[str, ...]
    show: Mapping[str, Any] = field(default_factory=dict)
    compare: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quantities: tuple[str, ...] = ()
    axis: str = ""
    axis_label: str = ""
    epoch_n_instances: int = 0
    epoch_words: str = ""
    published: Published | None = None

    @property
    def is_table(self) -> bool:
        return self.draw.split(".")[1:2] == ["tables"]

    @property
    def compares_peers(self) -> bool:
        """Whether its table divides the speed of each system by that of the first."""
        return self.draw == PEERS

    @property
    def shows_ceiling(self) -> bool:
        """Whether its tables show each system's share of the ceiling."""
        return bool(self.show.get("ceiling"))

    @property
    def draws_mini_batch(self) -> bool:
        """Whether it needs the data set itself, to build the graph that was counted."""
        return self.show.get("graph") == "plain"

    @property
    def reads_code(self) -> bool:
        """Whether it shows the code of models itself."""
        return "code" in self.show

    @property
    def stems(self) -> tuple[str, ...]:
        """What it writes, without suffix and relative to the results: one per figure or table."""
        if self.is_table and self.compare:
            return tuple(f"tables/{self.name}_{group}" for group in self.compare)
        return (f"tables/{self.name}" if self.is_table else f"figures/{self.name}",)

    @property
    def files(self) -> tuple[str, ...]:
        """All files that it writes, relative to the results."""
        suffixes = TABLE_SUFFIXES if self.is_table else FIGURE_SUFFIXES
        return (f"artefacts/{self.name}.json", *(s + x for s in self.stems for x in suffixes))


def read_presentation(name: str, conf_dir: Path) -> Presentation:
    """Read how an artefact is shown; raises ConfigError where the file is wrong."""
    content = read_experiment(name, conf_dir)
    for key in _required(content):
        if not content.get(key):
            raise ConfigError(
                f"experiment/{name}.yaml has no {key}; see plots/numbers/presentation.py"
            )
    _check_module(name, content["draw"])
    for note in content.get("notes") or ():
        if not isinstance(note, str):
            raise ConfigError(
                f"experiment/{name}.yaml has the note {note}, which is no text; put it in quotes"
            )
    compare = content.get("compare") or {}
    unknown = sorted(set(compare) - set(GROUP_TITLES))
    if unknown:
        allowed = ", ".join(GROUP_TITLES)
        message = f"experiment/{name}.yaml compares {', '.join(unknown)}"
        raise ConfigError(f"{message}; allowed are {allowed}")
    compared = {
        group: _compared(f"experiment/{name}.yaml, compare.{group}", said, conf_dir)
        for group, said in compare.items()
    }
    epoch = content.get("epoch") or {}
    return Presentation(
        name=name,
        title=content["title"],
        paper=content["paper"],
        draw=content["draw"],
        notes=tuple(content.get("notes") or ()),
        show=content.get("show") or {},
        compare=compared,
        quantities=tuple(content.get("quantities") or ()),
        axis=content.get("axis", ""),
        axis_label=content.get("axis_label", ""),
        epoch_n_instances=epoch.get("n_instances", 0),
        epoch_words=epoch.get("words", ""),
        published=_published(content.get("published")),
    )


def _required(content: Mapping[str, Any]) -> tuple[str, ...]:
    if "show" in content:
        return REQUIRED
    has_epoch = not WITHOUT_EPOCH.issuperset(content.get("quantities") or ())
    return (*REQUIRED, *REQUIRED_OF_CURVES, *(("epoch",) if has_epoch else ()))


def _compared(place: str, said: object, conf_dir: Path) -> tuple[str, ...]:
    """Names of a comparison's systems; the first is what the others are compared with."""
    selection = read_selection(place, said, conf_dir)
    if not selection.entries or selection.entries[0].word:
        raise ConfigError(f"{place} begins with no name; name what others are compared with first")
    names, known = selection.names(), choices_of("system", conf_dir)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ConfigError(
            f"{place} has {', '.join(unknown)}, which conf/system has not; choose from"
            f" {', '.join(known)}"
        )
    return names


def _check_module(name: str, draw: str) -> None:
    """Raise ConfigError where what shall draw is none of our modules."""
    kinds = ("figures", "tables")
    files = [path for kind in kinds for path in (ROOT / "plots" / kind).glob("[!_]*.py")]
    known = sorted(f"plots.{path.parent.name}.{path.stem}" for path in files)
    if draw not in known:
        message = f"experiment/{name}.yaml says draw: {draw}, which is no module"
        raise ConfigError(f"{message}; choose one of {', '.join(known)}")


def _published(chosen: Mapping[str, Any] | None) -> Published | None:
    return read_published(chosen["table"], chosen["model"]) if chosen else None
