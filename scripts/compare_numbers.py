"""Compare the numbers of two results directories: python scripts/compare_numbers.py OLD NEW.

Reads every CSV below OLD of which NEW has a file of the same name. A number is found by the keys
that both files have. Numbers must agree to 1e-9, words exactly. QUANTITIES and WORDS list names
that changed. Numbers that only NEW has are not compared.

Exit codes: 0 all equal, 1 a number differs or is missing.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

TOLERANCE = 1e-9  # relative, since the order of sums may change
ENDS = ("value", "low", "high", "n_rounds", "status", "warnings")
# Columns that tell where a number is from, or repeat another column.
IGNORED = (
    *("measured_on", "versions", "source", "unit", "interval", "label", "comparison", "axis"),
    *("role", "n_seeds", "screened_out", "short", "device", "family", "experiment"),
)
# Keys of a file without `quantity`; any other column is a quantity.
KEY_NAMES = (
    *("system", "model", "dataset", "split", "batch_size", "policy", "granularity", "mode", "seed"),
    *("setting", "cell", "workload", "hidden_size", "step", "graph", "mini_batch", "n_leaves", "x"),
)
SYSTEMS, PHASES = ("acrobat", "dynet"), ("construct", "schedule")
# Old name -> new name; the unit of a quantity with a factor changed.
QUANTITIES = {
    **dict.fromkeys(("speedup", "overall_speedup", "over_best_peer"), "instance_s over base"),
    "computation_speedup": "computation_s over base",
    "epoch_s": "instance_s",
    "of_ceiling": "throughput over ceiling",
    "ceiling": "throughput",
    "latency_ms": "forward_ms",
    "n_trials": "n_tried",
    # Columns of published tables.
    **dict.fromkeys(("cortex", "compiled", "interpreted"), "mini_batch_ms"),
    **dict.fromkeys(("acrobat", "dynet", "dynet_plus"), "mini_batch_ms"),
    **{f"{system}_{phase}": f"{phase}_ms" for system in SYSTEMS for phase in PHASES},
    **{f"{system}_kernels": "execution_ms" for system in SYSTEMS},
}
FACTORS = {"of_ceiling": 0.01}
WORDS = {"missing": "not measured", "not told": "not separable"}
STATES = ("equal", "different", "missing")
PUBLISHED, NOT_PLANNED = "published", "not run"  # what is not planned has no row any more

Number = tuple[dict[str, str], str, str, str]  # keys, quantity, end (value, low, ...), text


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the differences between two results directories, and how many numbers are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("old", "new"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--only", default="*", help="pattern of file names, without .csv")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    for old in sorted(options.old.rglob(f"{options.only}.csv")):
        new = options.new / old.relative_to(options.old)
        if new.exists():
            found, lines = compare_files(old, new)
            print("".join(f"{old.stem}: {line}\n" for line in lines), end="")
            counts += found + Counter(files=1)
    n_compared = sum(counts[state] for state in STATES)
    told = ", ".join(f"{counts[state]} {state}" for state in STATES)
    print(f"{counts['files']} files, {n_compared} numbers and words compared: {told}")
    return int(counts["equal"] < n_compared)


def compare_files(old: Path, new: Path) -> tuple[Counter[str], list[str]]:
    """Count equal, different and missing numbers; return a line for each that is not equal."""
    olds, news = [*read_numbers(old, is_old=True)], [*read_numbers(new, is_old=False)]
    shared = {key for keys, *_ in olds for key in keys} & {key for keys, *_ in news for key in keys}
    texts: dict[Hashable, list[str]] = defaultdict(list)
    for keys, quantity, end, text in news:
        texts[select_keys(keys, shared), quantity, end].append(text)
    counts: Counter[str] = Counter()
    lines = []
    for keys, quantity, end, text in olds:
        candidates = texts.get((select_keys(keys, shared), quantity, end), [])
        is_equal = any(agree(text, candidate) for candidate in candidates)
        state = STATES[0] if is_equal else STATES[1] if candidates else STATES[2]
        counts[state] += 1
        if not is_equal:
            named = ", ".join(f"{key}={value}" for key, value in keys.items())
            lines.append(f"{state}: {named}, {quantity}, {end}: {text!r}, now {candidates[:3]}")
    return counts, lines


def read_numbers(path: Path, *, is_old: bool) -> Iterator[Number]:
    """Read the numbers and words of a CSV, long (`quantity`, `value`) or wide, under new names."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    is_long = bool(rows) and {"quantity", "value"} <= {*rows[0]}
    for row in rows:
        keys = {name.rpartition(".")[2]: text for name, text in row.items()}
        if "x" in keys and keys.get("axis"):
            keys[keys["axis"].rpartition(".")[2]] = keys.pop("x")
        if keys.get("status") == NOT_PLANNED:
            continue
        is_published = PUBLISHED in (keys.get("comparison"), keys.get("status"))
        if is_published or keys.get("system", "").startswith("paper"):
            keys |= {"system": PUBLISHED, "status": PUBLISHED}  # named in another way
        found = {name: keys.pop(name) for name in [*keys] if is_number(name, is_long)}
        if is_long and not found["value"]:
            found["n_rounds"] = ""  # rounds that were planned, of no number
        quantity = keys.pop("quantity", "")
        pairs = ((name, text) for name, text in keys.items() if name not in IGNORED and text)
        settings = {name: text.removesuffix(".0") for name, text in pairs}
        for name, text in found.items():
            number = (quantity, name, text) if is_long else (name, "value", text)
            if name not in IGNORED and (text or name in ("status", "warnings")):
                yield (settings, *(rename(*number) if is_old else number))


def is_number(name: str, is_long: bool) -> bool:
    """Return whether a column has numbers or words that are compared, and not keys."""
    return name in ENDS if is_long else name not in (*KEY_NAMES, *IGNORED)


def rename(quantity: str, end: str, text: str) -> tuple[str, str, str]:
    """Give an old number its new names and unit."""
    if quantity in FACTORS and end in ("value", "low", "high"):
        text = repr(float(text) * FACTORS[quantity])
    return QUANTITIES.get(quantity, quantity), end, WORDS.get(text, text)


def select_keys(keys: dict[str, str], names: set[str]) -> Hashable:
    """Return those keys that both files have."""
    return frozenset((name, text) for name, text in keys.items() if name in names)


def agree(old: str, new: str) -> bool:
    """Return whether two texts are the same words, or numbers that agree to 1e-9."""
    if sorted(old.split()) == sorted(new.split()):
        return True
    try:
        return math.isclose(float(old), float(new), rel_tol=TOLERANCE)
    except ValueError:
        return False


if __name__ == "__main__":
    sys.exit(main())
