"""Write the committed form of results: packed records, with tables and small figures from them.

    python scripts/keep_reference.py results results/reference/MACHINE/SCALE

Everything is drawn from the packed records, so that committed tables match them. After a change of
the drawing code, redraw a committed directory by naming it twice:

    python scripts/keep_reference.py results/reference/MACHINE/SCALE results/reference/MACHINE/SCALE
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dynbatch.harness.commands.collect import pack, read_held
from dynbatch.harness.commands.draw import draw_held
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.grid import SCALES
from dynbatch.harness.records.files import replace_whole
from dynbatch.harness.records.record import Record
from dynbatch.harness.records.store import RecordSet, find_packed_files
from dynbatch.harness.terminal.exit_handling import make_command, print_message
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.plots.drawable import Drawable, select_drawable
from dynbatch.plots.report import shrink_picture

KEPT = {"tables": (".md", ".csv"), "figures": (".csv", ".png")}
WIDTH = 800  # of pictures, in pixels
PACKED_FROM = 2**12  # bytes of a CSV: its repetitions pack to a sixth
DEFAULTS = {"data_root": TrialSpec.data_root, "results_dir": "results"}  # without an override


@make_command("keep_reference")
def main(typed: list[str]) -> int:
    """Write the directory; return 0, or 1 after an error message of one line."""
    flags = _parse(typed)
    print_message("\n".join(keep(flags.results, flags.folder, flags)))
    return 0


def keep(results: Sequence[Path], folder: Path, flags: argparse.Namespace) -> list[str]:
    """Write the committed directory, and return a summary in lines."""
    if folder.is_dir() and any(folder.iterdir()) and not find_packed_files(folder):
        # Figures in it would be deleted.
        raise ConfigError(f"{folder} exists without packed records; choose another directory")
    places = [raw if (raw := location / "raw").is_dir() else location for location in results]
    stored = read_held(places, latest=True)
    records = tuple(remove_paths(record) for record in stored.records)
    packed = pack(RecordSet(records, stored.counts), folder, places)
    with tempfile.TemporaryDirectory() as drawn:
        config = {"records": folder, "results_dir": drawn, "data_root": flags.data_root}
        held = select_drawable(config | {"scale": flags.scale}, os.environ)
        names = _select_experiments(held, flags)
        for name in names:
            draw_held(name, held)
        _replace_drawings(Path(drawn), folder)
        sheets = [json.loads(Path(drawn, f"artifacts/{n}.json").read_text()) for n in names]
    replace_whole(folder / "README.md", build_readme(held, folder, sheets))
    left_out = [name for name in held.drawn if name not in names]
    note = f"excluded (add them with --partial or --only): {', '.join(left_out)}"
    return [packed, *held.lines, *([note] if left_out else [])]


def _select_experiments(held: Drawable, flags: argparse.Namespace) -> list[str]:
    """Return the named experiments, if any, or by default those with half of their records.

    An experiment that measures nothing needs no record.
    """
    parts = held.drawn
    if unknown := [name for name in flags.only or () if name not in parts]:
        raise ConfigError(
            f"no record of {', '.join(unknown)}, which --only selects; choose from"
            f" {', '.join(parts)}"
        )
    if flags.only is not None:
        return list(flags.only)
    names = [n for n, part in parts.items() if flags.partial or len(part.seen) >= part.n_missing]
    if not names:
        raise ConfigError(
            f"no experiment has most of its records in {held.records_path}; add --partial"
        )
    return names


def remove_paths(record: Record) -> Record:
    """Replace the paths of a record, which are those of one machine, by default directories."""
    parts = [word.partition("=") for word in shlex.split(record.command)]
    command = shlex.join(f"{key}{sign}{DEFAULTS.get(key, value)}" for key, sign, value in parts)
    elsewhere = {"data_root": DEFAULTS["data_root"], "command": command}
    if cache_dir := record.config.get("cache_dir"):
        elsewhere["cache_dir"] = f"{DEFAULTS['results_dir']}/{Path(cache_dir).name}"
    if python := record.config.get("python"):
        elsewhere["python"] = "/".join(Path(python).parts[-4:])  # .gpu-peers/jax/bin/python
    config = record.config | {key: elsewhere[key] for key in elsewhere.keys() & record.config}
    return record.model_copy(update={"config": config, "command": command})


def _replace_drawings(drawn: Path, folder: Path) -> None:
    """Copy the committed ones of the new files in a small form, and delete older ones."""
    for name, suffixes in KEPT.items():
        new = dict(make_small(path) for path in (drawn / name).glob("*") if path.suffix in suffixes)
        for file, content in sorted(new.items()):
            replace_whole(folder / name / file, content)
        for path in (folder / name).glob("*"):
            if path.name not in new:
                path.unlink()


def make_small(path: Path) -> tuple[str, bytes]:
    """Return the committed name and content of a drawn file."""
    if path.suffix == ".png":
        return path.name, shrink_picture(path, WIDTH)[0]
    content = path.read_bytes()
    if path.suffix == ".csv" and len(content) >= PACKED_FROM:
        return f"{path.name}.xz", lzma.compress(content, preset=9)
    return path.name, content


def build_readme(held: Drawable, folder: Path, sheets: Sequence[dict[str, Any]]) -> str:
    """Describe the content of the directory, from its records."""
    records, counts = held.held.records, held.held.counts
    machine = records[0].machine if records else {}
    days = sorted([r.started_at[:10] for r in records] + [c.counted_at[:10] for c in counts])
    cpus = {str(r.machine.get("cpu")) for r in records} | {row.cpu for row in counts}
    gpus = {gpu["name"] for r in records for gpu in r.machine.get("gpus") or ()}
    versions: dict[str, set[str]] = {}
    for record in records:
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    facts = {
        "CPU": ", ".join(sorted(cpus)),
        "usable CPUs": len(machine.get("usable_cpus") or ()) or None,
        "memory (GiB)": round(machine.get("memory_bytes", 0) / 2**30, 1) or None,
        "GPUs": ", ".join(sorted(gpus)) or "none",
        "system": machine.get("os"),
        "scale": held.choices.scale,
        "device, threads": f"{held.choices.device}, {held.choices.threads}",
        "measured": " to ".join(dict.fromkeys((days[0], days[-1]))),
        "records of trials": _describe_statuses(record.status for record in records),
        "records of counts": _describe_statuses(row.status for row in counts),
        "versions": ", ".join(f"{n} {'/'.join(sorted(v))}" for n, v in sorted(versions.items())),
    }
    return "\n".join(
        [
            f"# {folder.resolve().parent.name}, {held.choices.scale} scale",
            "",
            "Written by `scripts/keep_reference.py` from the records in this directory.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in facts.items() if value),
            *(["", "| experiment | title | files |", "|---|---|---|"] if sheets else ()),
            *map(_build_row, sheets),
            "",
        ]
    )


def _build_row(sheet: dict[str, Any]) -> str:
    links = []
    for stem in map(Path, sheet["stems"]):
        suffix = ".md" if stem.parent.name == "tables" else ".png"
        links.append(f"[{stem.name}]({stem}{suffix})")
    return f"| `{sheet['name']}` | {sheet['title']} | {' '.join(links)} |"


def _describe_statuses(statuses: Iterable[str]) -> str:
    counted = Counter(statuses)
    parts = [f"{n} {status}" for status, n in sorted(counted.items())]
    return f"{counted.total()} ({', '.join(parts)})" if parts else ""


def _parse(typed: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "results", type=Path, nargs="+", help="results directories, or packed records"
    )
    parser.add_argument("folder", type=Path, help="results/reference/MACHINE/SCALE")
    parser.add_argument("--scale", choices=SCALES, help="default: the one with most records")
    parser.add_argument("--data-root", type=Path, help="default: BENCH_DATA")
    parser.add_argument(
        "--partial", action="store_true", help="keep experiments without most of their records, too"
    )
    parser.add_argument(
        "--only", nargs="*", metavar="NAME", help="experiments to draw; none: records alone"
    )
    return parser.parse_args(typed)


if __name__ == "__main__":
    sys.exit(main())
