"""Files of conf/system, and lists that select systems by name or kind.

A list of systems, in an experiment's blocks or in its `compare`, has these entries in any order:

    vertex              the system of that name
    kind:framework      all systems of that kind, except the extra and the slow ones
    extra:framework     the extra systems of that kind, which headline tables have
    slow:framework      the slow systems of that kind, for the few points that have time for them
    not:dynet_depth     removes a system that a kind selects

Systems of a kind are sorted by name, and each system is listed once. In a block, a kind selects
only systems that can run the block's model; a named system is always selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from dynbatch.harness.contracts.networks import find_network_modules
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.yaml_files import read_mapping
from dynbatch.harness.values.checked import OneOf, Text, read
from dynbatch.harness.values.paths import PACKAGE, ROOT

KINDS = (
    *("strategy", "ablation", "framework", "subgraph", "model_rewrite"),
    *("upper_bound", "bandwidth", "control"),
)
GPU_PEERS = ROOT / ".gpu-peers"  # environments of frameworks with CUDA, made by make gpu-peers
SELECTING = ("kind", "extra", "slow")  # words that select systems by kind
_GRAMMAR = "expected NAME, kind:KIND, extra:KIND, slow:KIND or not:NAME"


@dataclass(frozen=True, slots=True)
class SystemFile:
    """Content of a file of conf/system.

    Attributes:
        kind: "strategy" (a preset of the shared engine), "ablation" (a step towards a preset),
            "framework" (a baseline with its own kernels), "subgraph" (single cells),
            "model_rewrite" (the engine on a model that is rewritten to compute less),
            "upper_bound" (a matmul bound of the workload), "bandwidth" (the memory bandwidth,
            independent of the workload) or "control" (the harness's own cost, or the reference).
        selected_by: word that selects it by its kind: "kind", "extra" (it varies another system) or
            "slow" (it is too slow for most points of a grid).
        models: names of models that it runs, and tables of their networks
            (dynbatch.harness.contracts.networks); None: all models.
        variant_of: system from which this one differs in one setting, such as a compiler. Both are
            measured; figures show the faster one (plots/tables/declared.py). None: not a variant.
        adapter: module whose class Adapter runs it.
        python: interpreter that measures it; None: this one, or on CUDA that of make gpu-peers.
    """

    name: Text
    kind: Annotated[str, OneOf(KINDS)]
    label: Text
    selected_by: Annotated[str, OneOf(SELECTING)] = "kind"
    models: Sequence[Text] | None = None
    variant_of: Text | None = None
    adapter: str = ""
    python: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return f"system/{self.name}.yaml"

    @property
    def framework(self) -> str:
        """Package of the adapter, such as "dynbatch.systems.on_torch", else a name of its own."""
        parts = self.adapter.split(".")
        depth = 3 if parts[0] == PACKAGE else 2  # dynbatch.systems.on_torch, or theirs.on_torch
        return ".".join(parts[:depth]) or self.name

    def find_python(self, device: str) -> str | None:
        """Return the interpreter that measures it; on CUDA, by default that of gpu-peers."""
        if self.python is not None or device != "cuda":
            return self.python
        peer = GPU_PEERS / self.framework.rpartition(".on_")[2]
        return str(peer / "bin" / "python") if (peer / ".installed").exists() else None

    def can_run(self, model: str) -> bool:
        """Return whether the adapter supports the model, without importing its framework."""
        if self.models is None:
            return True
        return any(model in _list_models(self.file, text) for text in self.models)


def read_systems(conf_dir: Path) -> tuple[SystemFile, ...]:
    """Return every system of conf/system, sorted by file; raise ConfigError for an invalid file."""
    paths = sorted((conf_dir / "system").glob("*.yaml"))
    systems = tuple(_read(path, path.stat().st_mtime_ns) for path in paths)
    by_name = {system.name: system for system in systems}
    for system in systems:
        if system.variant_of is not None:
            _check_variant(system, by_name)
    return systems


def _check_variant(system: SystemFile, by_name: Mapping[str, SystemFile]) -> None:
    """Raise ConfigError unless `variant_of` names a system of its kind that is not a variant."""
    heads = sorted(
        name
        for name, other in by_name.items()
        if other.variant_of is None and other.kind == system.kind
    )
    if system.variant_of not in heads:
        raise ConfigError(
            f"{system.file} has variant_of={system.variant_of}: expected a {system.kind} that is"
            f" not a variant; choose one of {', '.join(heads)}, or remove it"
        )


@cache
def _read(path: Path, _changed_ns: int) -> SystemFile:
    file = f"system/{path.name}"
    system = read(SystemFile, read_mapping(path), f"{file}: ", file)
    if system.name != path.stem:
        raise ConfigError(f"{file} has name={system.name}; set name: {path.stem}")
    return system


@cache
def _list_models(file: str, text: str) -> frozenset[str]:
    """Return the name itself if it is of a model, or the models of a table of networks."""
    if "." not in text and ":" not in text:
        return frozenset({text})
    models = find_network_modules(text)
    if not models:
        raise ConfigError(
            f"{file}: models={text} is not allowed: expected PACKAGE:DICTIONARY of networks, such"
            " as dynbatch.systems.on_torch.models:LEVELS"
        )
    return frozenset(models)


class Entry(NamedTuple):
    """One entry of a list of systems; `word` is "" for a system that is named."""

    word: str
    value: str


@dataclass(frozen=True, slots=True)
class Selection:
    """List of systems as read from a file.

    Attributes:
        source: file and key of the list, for messages.
        known: all systems; empty if the list has only names.
    """

    source: str
    entries: tuple[Entry, ...]
    known: tuple[SystemFile, ...]

    def list_names(self, models: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the names of the selected systems in order.

        Args:
            models: models of which a system must run at least one to be selected by kind.
        """
        left_out = {entry.value for entry in self.entries if entry.word == "not"}
        names: list[str] = []
        for word, value in self.entries:
            if not word:
                names.append(value)
            elif word != "not":
                names += [
                    name for name in self._select_kind(word, value, models) if name not in left_out
                ]
        return tuple(dict.fromkeys(names))

    def allows(self, system: str, model: str) -> bool:
        """Return whether the list selects a system for a model."""
        by_name = Entry("", system) in self.entries
        return by_name or any(
            candidate.name == system and candidate.can_run(model) for candidate in self.known
        )

    def _select_kind(self, word: str, kind: str, models: Sequence[str] | None) -> list[str]:
        names = [
            system.name
            for system in self.known
            if (system.kind, system.selected_by) == (kind, word)
            and (models is None or any(map(system.can_run, models)))
        ]
        if not names:
            runs = "" if models is None else f" and runs model={' or '.join(models)}"
            raise ConfigError(
                f"{self.source} selects {word}:{kind}, but no system in conf/system has this kind"
                f"{runs}; add one, or remove it"
            )
        return names


def read_selection(location: str, content: object, conf_dir: Path) -> Selection:
    """Read a list of systems, or a single entry.

    Files of conf/system are read only if the list has an entry other than names.
    """
    entries = [
        _parse_entry(location, item)
        for item in (content if isinstance(content, list) else [content])
    ]
    known = read_systems(conf_dir) if any(entry.word for entry in entries) else ()
    names = sorted(system.name for system in known)
    for word, value in entries:
        if word == "not" and value not in names:
            raise ConfigError(
                f"{location} has not:{value}, an unknown system; choose one of {', '.join(names)}"
            )
    return Selection(location, tuple(entries), known)


def _parse_entry(location: str, content: object) -> Entry:
    if isinstance(content, Mapping):
        raise ConfigError(f"{location} selects {content}: {_GRAMMAR}; remove the space")
    word, colon, value = str("null" if content is None else content).rpartition(":")
    if colon and word not in (*SELECTING, "not"):
        raise ConfigError(f"{location} selects {content}: {_GRAMMAR}")
    if word in SELECTING and value not in KINDS:
        raise ConfigError(f"{location} selects {content}; choose one of {', '.join(KINDS)}")
    return Entry(word, value)
