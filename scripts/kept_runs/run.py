"""The records of a committed run, by workload, system and round; and numbers of them in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.contracts.system import Phase
from harness.records.record import Record
from harness.records.stats import paired_ratios, summarise
from harness.records.stored import held_in
from plots.numbers.best_peer import ratio_words
from plots.numbers.points import Measured
from plots.numbers.table import EN_DASH

Rounds = Mapping[int, Record]


class Workload(NamedTuple):
    """What all systems of a table's row have alike."""

    model: str
    mode: str
    hidden_size: int
    batch_size: int
    threads: int = 1


Run = Mapping[Workload, Mapping[str, Rounds]]


def read_run(folder: Path) -> Run:
    """All records of a folder that have a number; raises RecordError where one cannot be read."""
    run: dict[Workload, dict[str, dict[int, Record]]] = {}
    for record in held_in([folder]).records:
        if record.instances_per_s is not None:
            trial = record.trial
            workload = Workload(
                trial.model, trial.mode, trial.hidden_size, trial.batch_size, trial.threads
            )
            run.setdefault(workload, {}).setdefault(trial.system, {})[trial.round] = record
    return run


def speeds(rounds: Rounds) -> dict[int, float]:
    """Instances per second of each round."""
    return {n: one.instances_per_s for n, one in rounds.items() if one.instances_per_s is not None}


def speed(rounds: Rounds) -> float:
    """Their median."""
    return summarise(list(speeds(rounds).values())).median


def speed_words(rounds: Rounds) -> str:
    """As "1,234 [1,200-1,250]": the median, and the range or the interval."""
    found = summarise(list(speeds(rounds).values()))
    ends = [_number(end) for end in (found.low, found.high) if end is not None]
    return _number(found.median) + (f" [{'-'.join(ends)}]" if ends else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.2f}"  # Berxit does eight a second


def gain(above: Rounds, below: Rounds) -> float:
    """The median over rounds of how many times as fast the one is as the other."""
    return summarise(paired_ratios(speeds(above), speeds(below))).median


def gain_words(above: Rounds, below: Rounds) -> str:
    """The same with its ends, as "1.24 [1.19-1.35]"."""
    return ratio_words(Measured("ok", summarise(paired_ratios(speeds(above), speeds(below)))))


def phase_words(rounds: Rounds, phases: Sequence[Phase], n_decimals: int = 2) -> str:
    """Milliseconds of a mini-batch in all of these phases; a dash where one is not told apart."""
    totals: list[float] = []
    for record in rounds.values():
        parts = [record.phases_s[phase] for phase in phases]
        if None in parts:
            return EN_DASH
        totals.append(sum(part for part in parts if part is not None))
    return f"{summarise(totals).median * 1e3:.{n_decimals}f}"


def memory_mib(rounds: Rounds) -> int:
    """Peak memory of the process."""
    found = [one.peak_memory_bytes / 2**20 for one in rounds.values() if one.peak_memory_bytes]
    return round(summarise(found).median)


def row(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def head(*columns: str) -> list[str]:
    """Its first two lines."""
    return [row(*columns), f"|{'---|' * len(columns)}"]
