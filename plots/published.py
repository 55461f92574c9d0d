"""Published numbers: plots/published/*.yaml in the columns of `dynbatch.harness.records.numbers`.

paper, location, hardware: the source         # short, device: its names in figures
key: model batch_size                      # settings that the name of a row gives
columns: [[throughput, DyNet], [n_nodes]]  # [QUANTITY, SYSTEM], [QUANTITY], or a mapping
rows: {tree_lstm 8: [1860, null]}          # null: not published
parts: {tree_lstm: {rows: ...}}            # by model, in place of rows; keys of a part override
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.values.paths import ROOT
from dynbatch.plots.declaration import check_name

FOLDER = ROOT / "plots" / "published"
PUBLISHED = "published"  # the status of a number from a paper


def read_published(table: str, model: str | None = None, folder: Path = FOLDER) -> pd.DataFrame:
    """Read a table of a paper.

    Times have the paper's unit: seconds per epoch if the paper gives those.
    """
    content = _read_content(table, model, folder)
    keys = content["key"].split(" ")
    columns = [
        entry if isinstance(entry, dict) else dict(zip(("quantity", "system"), entry, strict=False))
        for entry in content["columns"]
    ]
    rows = []
    for name, values in content["rows"].items():
        if len(values) != len(columns):
            raise ConfigError(
                f"{folder / table}.yaml, row {name}: expected {len(columns)} numbers, one for each"
                f" column, got {len(values)}; fix the row"
            )
        settings = map(yaml.safe_load, str(name).split(" "))
        row = dict(zip(keys, settings, strict=True))
        rows += [{**row, **columns[n], "value": value} for n, value in enumerate(values)]
    results = _add_sums(pd.DataFrame(rows).dropna(subset="value").astype({"value": float}))
    return results.assign(
        status=PUBLISHED,
        warnings="",
        source=f"{content['paper']}, {content['location']}; {content['hardware']}",
        short=content["short"],
        device=content.get("device", ""),
    )


def _read_content(table: str, model: str | None, folder: Path) -> dict[str, Any]:
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    check_name("plots/published", "table", table, known)
    content: dict[str, Any] = yaml.safe_load((folder / f"{table}.yaml").read_text(encoding="utf-8"))
    if "parts" in content:
        check_name(f"published table {table!r}", "model", model, content["parts"])
        return {**content, **content["parts"][model]}
    if model is not None:
        raise ConfigError(
            f"published table {table!r}: not split by model, got {model!r}; remove model"
        )
    return content


def _add_sums(results: pd.DataFrame) -> pd.DataFrame:
    """Add the sum of construction and computation, and the percentage of construction."""
    if "construction_s" not in set(results.quantity):
        return results
    keys = [name for name in results if name not in ("quantity", "value")]
    times = results.pivot(index=keys, columns="quantity", values="value")  # noqa: PD010
    added = pd.DataFrame({"instance_s": times.construction_s + times.computation_s})
    added["construction_percent"] = 100 * times.construction_s / added.instance_s
    long = added.melt(var_name="quantity", ignore_index=False).dropna().reset_index()
    return pd.concat([results, long], ignore_index=True)
