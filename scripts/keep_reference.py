"""Make the committed form of measured results: records packed, tables and small figures from them.

    python scripts/keep_reference.py results results/reference/MACHINE/SCALE

Everything is drawn anew from the packed records, so that what is committed is what they say. A
committed folder is drawn again, after a change of what draws, by naming it twice:

    python scripts/keep_reference.py results/reference/MACHINE/SCALE results/reference/MACHINE/SCALE
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.commands.collect import pack_held, records_in
from harness.commands.draw import draw_held
from harness.errors import BenchError, ConfigError
from harness.planning.grid import SCALES
from harness.records.record import Record
from harness.records.stored import Held, counts_in, packed_files
from harness.records.whole_files import replace_whole
from harness.trials.spec import TrialSpec
from plots.numbers.drawable import Drawable, drawable
from plots.writing.small_picture import small_picture

KEPT = {"tables": (".md", ".csv"), "figures": (".csv", ".png")}
WIDTH = 1000  # of pictures, in pixels
PACKED_FROM = 2**12  # bytes of a table, which repeats itself: a sixth is left of it
CLOCK_DIGITS = 9  # of seconds: nanoseconds
DEFAULTS = {"data_root": TrialSpec.data_root, "results_dir": "results"}  # if nobody names another


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when the folder was written, 1 with one line when it cannot be."""
    flags = _parse(arguments)
    try:
        words = keep(flags.results, flags.folder, flags)
    except BenchError as error:
        print(f"keep_reference: {error}", file=sys.stderr)
        return 1
    print(*words, sep="\n", file=sys.stderr)
    return 0


def keep(results: Sequence[Path], folder: Path, flags: argparse.Namespace) -> list[str]:
    """Write the committed folder, and return in words what is in it."""
    _check_folder(folder)
    places = [raw if (raw := place / "raw").is_dir() else place for place in results]
    found_records = map(without_places, records_in(places, latest=True))
    records = tuple(map(in_nanoseconds, found_records))
    words = [pack_held(Held(records, tuple(counts_in(places))), folder, places)]
    with tempfile.TemporaryDirectory() as drawn:
        config = {"records": folder, "results_dir": drawn, "data_root": flags.data_root}
        found = drawable(config | {"scale": flags.scale}, os.environ)
        names = _kept_artefacts(found, flags)
        for name in names:
            draw_held(name, found)
        _replace_drawings(Path(drawn), folder)
        sheets = [json.loads(Path(drawn, f"artefacts/{n}.json").read_text()) for n in names]
    replace_whole(folder / "README.md", readme_of(found, folder, sheets))
    left_out = [name for name in found.drawn if name not in names]
    note = f"left out (--partial or --only keeps them): {', '.join(left_out)}"
    return [*words, *found.lines, *([note] if left_out else [])]


def _kept_artefacts(found: Drawable, flags: argparse.Namespace) -> list[str]:
    """Those that were named, else those that the records have most of."""
    parts = found.drawn
    if unknown := [name for name in flags.only if name not in parts]:
        raise ConfigError(
            f"--only names {', '.join(unknown)}, which no record is of; there are"
            f" {', '.join(parts)}"
        )
    names = [n for n, part in parts.items() if flags.partial or len(part.seen) >= part.n_missing]
    if not flags.only and not names:
        raise ConfigError(f"no artefact has most of its records in {found.place}; say --partial")
    return flags.only or names


def without_places(record: Record) -> Record:
    """The record as of default folders: where inputs and records lay says nothing elsewhere."""
    words = [word.partition("=") for word in record.command.split(" ")]
    command = " ".join(f"{key}{sign}{DEFAULTS.get(key, at)}" for key, sign, at in words)
    elsewhere = {"data_root": DEFAULTS["data_root"], "command": command}
    if cache_dir := record.config.get("cache_dir"):
        elsewhere["cache_dir"] = f"{DEFAULTS['results_dir']}/{Path(cache_dir).name}"
    config = record.config | {key: elsewhere[key] for key in elsewhere.keys() & record.config}
    return record.model_copy(update={"config": config, "command": command})


def in_nanoseconds(record: Record) -> Record:
    """The record with samples in whole nanoseconds, as the clock told them.

    What their sums as floats have beyond that is a ninth of a packed file.
    """
    names = ("samples_s", "marked_samples_s")
    samples = {name: tuple(round(s, CLOCK_DIGITS) for s in getattr(record, name)) for name in names}
    return record.model_copy(update=samples)


def _check_folder(folder: Path) -> None:
    """Raise ConfigError for a folder of something else, whose pictures would be deleted."""
    if folder.is_dir() and any(folder.iterdir()) and not packed_files(folder):
        raise ConfigError(
            f"{folder} is there and holds no packed records, so it stays; give another folder"
        )


def _replace_drawings(drawn: Path, folder: Path) -> None:
    """Copy what is kept of the new drawings, made small, and delete the older ones."""
    for name, suffixes in KEPT.items():
        new = dict(made_small(path) for path in (drawn / name).glob("*") if path.suffix in suffixes)
        for file, content in sorted(new.items()):
            replace_whole(folder / name / file, content)
        for path in (folder / name).glob("*"):
            if path.name not in new:
                path.unlink()


def made_small(path: Path) -> tuple[str, bytes]:
    """The name and the content under which a drawing is kept."""
    if path.suffix == ".png":
        return path.name, small_picture(path, WIDTH)
    content = path.read_bytes()
    if path.suffix == ".csv" and len(content) >= PACKED_FROM:
        return f"{path.name}.xz", lzma.compress(content, preset=9)
    return path.name, content


def readme_of(found: Drawable, folder: Path, sheets: Sequence[dict[str, Any]]) -> str:
    """What is in the folder, as its records tell it."""
    records, counts = found.held.records, found.held.counts
    machine = records[0].machine if records else {}
    days = sorted([r.started_at[:10] for r in records] + [c.counted_at[:10] for c in counts])
    versions: dict[str, set[str]] = {}
    for record in records:
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    facts = {
        "CPU": ", ".join(sorted({str(r.machine.get("cpu")) for r in records} | _cpus(found))),
        "CPUs that could be used": len(machine.get("usable_cpus") or ()) or None,
        "memory (GiB)": round(machine.get("memory_bytes", 0) / 2**30, 1) or None,
        "GPUs": ", ".join(sorted({g["name"] for r in records for g in r.machine.get("gpus") or ()}))
        or "none",
        "system": machine.get("os"),
        "scale": found.choices.scale,
        "device, threads": f"{found.choices.device}, {found.choices.threads}",
        "measured": " to ".join(dict.fromkeys((days[0], days[-1]))),
        "records of trials": _statuses(record.status for record in records),
        "records of counts": _statuses(row.status for row in counts),
        "versions": ", ".join(f"{n} {'/'.join(sorted(v))}" for n, v in sorted(versions.items())),
    }
    return "\n".join(
        [
            f"# {folder.resolve().parent.name}, {found.choices.scale} scale",
            "",
            "Written by `scripts/keep_reference.py` from the records beside it.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in facts.items() if value),
            "",
            "| artefact | title | files |",
            "|---|---|---|",
            *map(_row, sheets),
            "",
        ]
    )


def _row(sheet: dict[str, Any]) -> str:
    suffix = ".md" if sheet["is_table"] else ".png"
    stems = [str(stem) for stem in sheet["stems"]]
    links = " ".join(f"[{Path(stem).name}]({stem}{suffix})" for stem in stems)
    return f"| `{sheet['name']}` | {sheet['title']} | {links} |"


def _cpus(found: Drawable) -> set[str]:
    return {row.cpu for row in found.held.counts}


def _statuses(statuses: Iterable[str]) -> str:
    counted = Counter(statuses)
    parts = [f"{n} {status}" for status, n in sorted(counted.items())]
    return f"{counted.total()} ({', '.join(parts)})" if parts else ""


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "results", type=Path, nargs="+", help="folders of results, or of packed records"
    )
    parser.add_argument("folder", type=Path, help="results/reference/MACHINE/SCALE")
    parser.add_argument("--scale", choices=SCALES, help="what fits most records, if left out")
    parser.add_argument("--data-root", type=Path, help="BENCH_DATA, if left out")
    parser.add_argument(
        "--partial",
        action="store_true",
        help="keep artefacts of which most records are missing, too",
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="artefacts to keep")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
