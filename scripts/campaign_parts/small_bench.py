"""Runs of `bench` and of the pipeline that take seconds, as commands, and what they leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from harness.values.places import CONF_DIR, ROOT
from scripts.campaign_parts.kept import Kept
from scripts.campaign_parts.place import Place, python

BENCH = "harness.commands.bench"
TINY = (
    "model=tree_fc",
    "dataset=complete_trees",
    "dataset.options.n_leaves=4",
    "hidden_size=4",
    "batch_size=2",
    "timing.min_seconds=0",
    "timing.n_mini_batches=1",
    "timing.min_passes=1",
)
MISBEHAVING = (
    "system=reference",
    "system.name=misbehaving",
    "system.adapter=scripts.campaign_parts.misbehaving",
)
SNAKEMAKE_CONFIG = ("scale=smoke", "device=cpu", "conf_dir=conf", "data_root=no_data")
LOG = "measured.log"
LIMIT_S = 120.0  # of a command that takes seconds


def bench(place: Place, *overrides: str, sweep: bool = False) -> list[str]:
    """`bench` on the tiniest trial, with records in the place."""
    flags = ["-m"] if sweep else []
    return python(BENCH, *flags, *TINY, f"results_dir={place.results}", *overrides)


def logged_sweep(place: Place, pause_s: float) -> list[str]:
    """Two systems in two rounds; one notes when it measures, and takes its time."""
    log = f"+system.options.log={LOG}"  # relative: names of records hold a hash of all options
    pauses = f"+system.options.pause_s={pause_s},{pause_s + 0.001}"
    return bench(place, *MISBEHAVING, log, pauses, "rounds=2", sweep=True)


def beside_each_other(log: Path) -> tuple[str, str] | None:
    """The processes of two measurements that the logged system noted in turns, None where none is.

    Whatever stands between a process's first line and its last happened beside it.
    """
    pids = [line.rpartition(" ")[2] for line in _lines(log)]
    for place, pid in enumerate(pids):
        if place and pids[place - 1] != pid and pid in pids[:place]:
            return pid, pids[place - 1]
    return None


def n_noted(log: Path) -> int:
    """How often the logged system has noted something."""
    return len(_lines(log))


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def expected_of(place: Place) -> frozenset[str]:
    """Names of the records that are there, as those that a run without faults leaves."""
    return frozenset(Kept.of(place.results).complete)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One artefact of two systems and two batch sizes, in two rounds."""

    folder: Path
    systems: Sequence[str] = ("null", "reference")
    timing: Mapping[str, int] = field(
        default_factory=lambda: {
            "timing.min_seconds": 0,
            "timing.n_mini_batches": 1,
            "timing.min_passes": 1,
        }
    )

    def write(self) -> None:
        """Write the configuration of the pipeline: the repository's, with this artefact alone."""
        conf = self.folder / "conf"
        conf.mkdir(parents=True)
        for path in CONF_DIR.iterdir():
            if path.name != "experiment":
                (conf / path.name).symlink_to(path)
        (conf / "experiment").mkdir()
        text = yaml.safe_dump(self._artefact())
        (conf / "experiment" / "small_table.yaml").write_text(text, encoding="utf-8")

    def command(self, *arguments: str) -> list[str]:
        """How Snakemake measures and draws it."""
        start = python("snakemake", "--snakefile", str(ROOT / "Snakefile"))
        return [*start, "draw_small_table", *arguments, "--config", *SNAKEMAKE_CONFIG]

    def _artefact(self) -> dict[str, object]:
        base = {"model": "tree_lstm", "dataset": "sst", "hidden_size": 4, **self.timing}
        blocks = [{"system": list(self.systems), "batch_size": [1, 2]}]
        return {
            "title": "Tree-LSTM in miniature",
            "paper": "none",
            "compare": {"systems": list(self.systems)},
            "table": {
                "rows": ["batch_size"],
                "columns": ["quantity", "system"],
                "values": {
                    "computation_s": "computation (s/epoch)",
                    "instance_s over base": "speedup",
                },
                "epoch": 100,
                "published": {"table": "cavs_short_table1", "model": "tree_lstm"},
            },
            "scales": {"smoke": {"rounds": 2, "base": base, "blocks": blocks}},
        }
