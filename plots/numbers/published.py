"""Numbers that papers published, read from plots/published/*.yaml; always marked as the paper's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.errors import ConfigError
from harness.values.places import ROOT

FOLDER = ROOT / "plots" / "published"
# What a figure shows and a table prints in two parts: from construction and computation, s/epoch.
DERIVED: Mapping[str, Callable[[float, float], float]] = {
    "epoch_s": lambda graph, rest: graph + rest,
    "construction_percent": lambda graph, rest: 100.0 * graph / (graph + rest),
}


@dataclass(frozen=True, slots=True)
class Published:
    """One half of a published table: values by (quantity, system, x), in the paper's own unit.

    axis: the key of what x counts (batch_size, n_leaves). epoch: the paper's epoch in words, or
        nothing where no number is of one.
    """

    short: str
    paper: str
    where: str
    hardware: str
    device: str
    axis: str
    epoch: str
    labels: Mapping[str, str]
    values: Mapping[tuple[str, str, float], float]

    @property
    def source(self) -> str:
        return f"{self.paper}, {self.where}; {self.hardware}"

    @property
    def xs(self) -> tuple[float, ...]:
        return tuple(sorted({x for _, _, x in self.values}))

    def value(self, quantity: str, system: str, x: float) -> float | None:
        """A printed number, or one that follows from two printed ones; None if there is none."""
        printed = self.values.get((quantity, system, x))
        if printed is not None or quantity not in DERIVED:
            return printed
        graph = self.values.get(("construction_s", system, x))
        rest = self.values.get(("computation_s", system, x))
        return None if graph is None or rest is None else DERIVED[quantity](graph, rest)


def read_published(name: str, model: str, folder: Path = FOLDER) -> Published:
    """Read the part of a published table that is about one model."""
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise ConfigError(f"published table {name} is unknown; choose one of: {known}")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    blocks = {block["model"]: block for block in content["blocks"]}
    if model not in blocks:
        raise ConfigError(f"published table {name} has no {model}; it has {', '.join(blocks)}")
    block = blocks[model]
    return Published(
        short=content["short"],
        paper=content["paper"],
        where=content["where"],
        hardware=content["hardware"],
        device=content["device"],
        axis=block["axis"],
        epoch=block.get("epoch", ""),
        labels=content["systems"],
        values=dict(_values(name, block)),
    )


def _values(name: str, block: Mapping[str, Any]) -> list[tuple[tuple[str, str, float], float]]:
    columns = block["columns"]
    items = []
    for x, row in block["rows"].items():
        if len(row) != len(columns):
            raise ConfigError(
                f"published table {name}, row {x} has {len(row)} numbers for {len(columns)} "
                "columns; correct the file"
            )
        for (quantity, system), value in zip(columns, row, strict=True):
            items.append(((quantity, system, float(x)), float(value)))
    return items
