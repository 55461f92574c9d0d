"""The answers at the top of the report: all systems of each workload, from the CSV of answers.

What the records do not tell is said: no record, a failure, a difference that they cannot show.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from plots.numbers.table import DAGGER, TIMES, three_digits

ANSWERS = "tables/answers.csv"
TRUE = str(True)  # as CSV has it


@dataclass(frozen=True, slots=True)
class Bar:
    """One system: its speed as words and as a share of the fastest, and how the engine compares."""

    label: str
    speed: str
    share_percent: float
    gain: str
    is_engine: bool


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload: its words, a sentence, and its systems, the fastest first."""

    words: str
    sizes: str
    unit: str
    sentence: str
    bars: tuple[Bar, ...]
    anchor: str


def read_answers(results_dir: Path) -> tuple[Workload, ...]:
    """Every workload of the headlines; none where they were not drawn."""
    path = results_dir / ANSWERS
    if not path.exists():
        return ()
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return tuple(
        _workload(list(group))
        for _, group in groupby(rows, key=lambda row: (row["experiment"], row["workload"]))
    )


def _workload(rows: list[dict[str, str]]) -> Workload:
    first = rows[0]
    fastest = max((float(row["value"]) for row in rows if row["value"]), default=0.0)
    return Workload(
        words=first["workload"],
        sizes=f"hidden size {first['hidden_size']}, batch size {first['batch_size']}",
        unit=first["unit"],
        sentence=_sentence(rows),
        bars=tuple(_bar(row, fastest) for row in rows) if fastest else (),
        anchor=first["experiment"],
    )


def _bar(row: dict[str, str], fastest: float) -> Bar:
    is_engine = row["is_engine"] == TRUE
    if not row["value"]:
        return Bar(row["label"], row["status"], 0.0, "", is_engine)
    value, mark = float(row["value"]), DAGGER if row["warnings"] else ""
    gain = "" if is_engine else _gain_words(row)
    speed = f"{value:,.0f}" if value >= 100 else three_digits(value)
    return Bar(row["label"], f"{speed}{mark}", 100 * value / fastest, gain, is_engine)


def _gain_words(row: dict[str, str]) -> str:
    """What the engine gains over a system, with its ends."""
    if not row["engine_over_it_value"]:
        return ""
    ends = _ends(row)
    spread = f" ({' to '.join(f'{end:.2f}' for end in ends)})" if ends else ""
    return f"{float(row['engine_over_it_value']):.2f}{TIMES}{spread}"


def _ends(row: dict[str, str]) -> list[float]:
    found = (row["engine_over_it_low"], row["engine_over_it_high"])
    return [float(end) for end in found if end]


def _sentence(rows: list[dict[str, str]]) -> str:
    """The answer in words, and how sure it is."""
    engine = next((row for row in rows if row["is_engine"] == TRUE), None)
    best = next((row for row in rows if row["is_best_peer"] == TRUE), None)
    if engine is None or not engine["value"]:
        return "Not measured."
    if best is None:
        return "No peer has a number."
    ratio, ends = float(best["engine_over_it_value"]), _ends(best)
    told = [ratio, *ends]
    rounds = int(best["engine_over_it_n_rounds"] or 1)
    how_sure = f"{rounds} rounds" if rounds > 1 else "one round, so nothing tells its spread"
    if min(told) <= 1 <= max(told):
        return f"{engine['label']} and {best['label']} cannot be told apart ({how_sure})."
    if ratio > 1:
        return (
            f"{engine['label']}: {_gain_words(best)} the best peer, {best['label']} ({how_sure})."
        )
    return f"{best['label']} is faster: the engine makes {_gain_words(best)} of it ({how_sure})."
