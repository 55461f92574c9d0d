"""Systems by kind: what a YAML says of its system, and lists that select systems by it.

A list of systems, in an experiment's blocks or in its `compare`, holds in any order

    vertex              a system by its name
    kind:framework      all systems of a kind, but for the slow ones
    slow:framework      the slow ones of that kind, for the few points that have time for them
    not:dynet_depth     leaves one out that a kind brings in

Systems by kind come by name, each system once. In a block only those come that can run its model;
a system that is named comes in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from harness.contracts.networks import modules_of
from harness.errors import ConfigError
from harness.planning.yaml_files import read_mapping
from harness.values.checked import OneOf, Text, read

KINDS = (
    *("strategy", "ablation", "framework", "subgraph", "transformed"),
    *("calibration", "bandwidth", "control"),
)
_GRAMMAR = "write NAME, kind:KIND, slow:KIND or not:NAME"


@dataclass(frozen=True, slots=True)
class SystemFile:
    """A file of conf/system.

    kind: "strategy" (a preset of the shared engine), "ablation" (a step on the way to one),
        "framework" (a peer with kernels of its own),
        "subgraph" (single cells), "transformed" (the engine on a model changed to compute less),
        "calibration" (what the machine does of a workload at most: the ceiling), "bandwidth" (what
        its memory gives at most, whatever the workload) or "control" (the harness's own cost, or
        the truth).
    slow: too slow for every point of a grid.
    models: names of models that it runs, and tables of their networks (harness.contracts.networks);
        None: all models.
    variant_of: the system that this one is but for a setting (a compiler, say). Both are measured;
        figures show the faster of them (plots/tables/declared.py). None: it is no variant.
    adapter: the module whose class Adapter runs it.
    python: the interpreter that measures it, if its framework needs an environment of its own.
    """

    name: Text
    kind: Annotated[str, OneOf(KINDS)]
    label: Text
    slow: bool = False
    models: Sequence[Text] | None = None
    variant_of: Text | None = None
    adapter: str = ""
    python: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """Where it is, as messages name it."""
        return f"system/{self.name}.yaml"

    @property
    def framework(self) -> str:
        """Whose it is: systems of one share a package, "systems.on_torch"; else it is alone."""
        parts = self.adapter.split(".")
        return ".".join(parts[:2]) if len(parts) > 2 else self.adapter or self.name

    def runs(self, model: str) -> bool:
        """Whether its adapter knows the model; nothing of its framework is imported to tell."""
        if self.models is None:
            return True
        return any(model in _models_in(self.file, text) for text in self.models)


def read_systems(conf_dir: Path) -> tuple[SystemFile, ...]:
    """Every system of conf/system by name; raises ConfigError for a file that is wrong."""
    paths = sorted((conf_dir / "system").glob("*.yaml"))
    systems = tuple(_read(path, path.stat().st_mtime_ns) for path in paths)
    by_name = {system.name: system for system in systems}
    for system in systems:
        if system.variant_of is not None:
            _check_variant(system, by_name)
    return systems


def _check_variant(system: SystemFile, by_name: Mapping[str, SystemFile]) -> None:
    """Raise ConfigError unless it is the variant of a system of its kind, itself no variant."""
    heads = sorted(
        name
        for name, other in by_name.items()
        if other.variant_of is None and other.kind == system.kind
    )
    if system.variant_of not in heads:
        found = by_name.get(str(system.variant_of))
        fault = "which is no system"
        if found is not None:
            is_variant = found.variant_of is not None
            fault = "itself a variant" if is_variant else f"of kind {found.kind}"
        raise ConfigError(
            f"{system.file} has variant_of={system.variant_of}, {fault}; choose one of"
            f" {', '.join(heads)}, or leave it out"
        )


@cache
def _read(path: Path, _changed_ns: int) -> SystemFile:
    file = f"system/{path.name}"
    system = read(SystemFile, read_mapping(path), f"{file}: ", file)
    if system.name != path.stem:
        raise ConfigError(f"{file} has name={system.name}; give it the name of its file")
    return system


@cache
def _models_in(file: str, text: str) -> frozenset[str]:
    """Return a model's own name, or the models of a table of networks."""
    if "." not in text and ":" not in text:
        return frozenset({text})
    found = modules_of(text)
    if not found:
        raise ConfigError(
            f"{file} has models={text}, which is no table of networks; write a package, a colon and"
            " the name of a dictionary in its modules, as systems.on_torch.models:LEVELS"
        )
    return frozenset(found)


class Entry(NamedTuple):
    """One entry of a list of systems; word is "" for a system by its name."""

    word: str
    value: str


@dataclass(frozen=True, slots=True)
class Selection:
    """A list of systems as it was read.

    known: all systems; left empty where the list has names alone, which need none.
    """

    place: str
    entries: tuple[Entry, ...]
    known: tuple[SystemFile, ...]

    @property
    def selects_by_kind(self) -> bool:
        """Whether anything but names is in it."""
        return any(entry.word for entry in self.entries)

    def names(self, models: Sequence[str] | None = None) -> tuple[str, ...]:
        """Names of the selected systems in order; by kind, those that run one of the models.

        Raises ConfigError for a kind that brings nothing in.
        """
        left_out = {entry.value for entry in self.entries if entry.word == "not"}
        names: list[str] = []
        for word, value in self.entries:
            if not word:
                names.append(value)
            elif word != "not":
                names += [one for one in self._of(word, value, models) if one not in left_out]
        return tuple(dict.fromkeys(names))

    def allows(self, system: str, model: str) -> bool:
        """Whether a system of `names` is selected for this model."""
        by_name = Entry("", system) in self.entries
        return by_name or any(one.name == system and one.runs(model) for one in self.known)

    def _of(self, word: str, kind: str, models: Sequence[str] | None) -> list[str]:
        found = [
            system.name
            for system in self.known
            if (system.kind, system.slow) == (kind, word == "slow")
            and (models is None or any(map(system.runs, models)))
        ]
        if not found:
            runs = "" if models is None else f" that runs model={' or '.join(models)}"
            raise ConfigError(
                f"{self.place} selects {word}:{kind}, but no file of conf/system is"
                f" such a system{runs}; add one, or leave it out"
            )
        return found


def read_selection(place: str, said: object, conf_dir: Path) -> Selection:
    """Read a list of systems, or a single entry; raises ConfigError, which begins with the place.

    Files of conf/system are read only where something is selected by kind.
    """
    entries = [_entry(place, one) for one in (said if isinstance(said, list) else [said])]
    known = read_systems(conf_dir) if any(entry.word for entry in entries) else ()
    names = sorted(system.name for system in known)
    for word, value in entries:
        if word == "not" and value not in names:
            raise ConfigError(
                f"{place} has not:{value}, which is no system; choose one of {', '.join(names)}"
            )
    return Selection(place, tuple(entries), known)


def _entry(place: str, said: object) -> Entry:
    if isinstance(said, Mapping):
        raise ConfigError(f"{place} selects {said}; {_GRAMMAR}, without a space")
    word, colon, value = str("null" if said is None else said).rpartition(":")
    if colon and word not in ("kind", "slow", "not"):
        raise ConfigError(f"{place} selects {said}; {_GRAMMAR}")
    if word in ("kind", "slow") and value not in KINDS:
        raise ConfigError(f"{place} selects {said}; kinds are {', '.join(KINDS)}")
    return Entry(word, value)
