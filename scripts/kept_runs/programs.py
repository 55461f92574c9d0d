"""ACRoBat's seven models: its strategy beside DyNet, PyTorch and no batching."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from scripts.kept_runs.run import (
    Rounds,
    Run,
    Workload,
    gain,
    gain_words,
    head,
    phase_words,
    row,
    speed,
    speed_words,
)

MODELS = ("tree_lstm", "mv_rnn", "birnn", "nested_rnn", "drnn", "berxit", "stack_rnn")
STRATEGY, AHEAD, NONE, BY_HAND = "acrobat", "acrobat_ahead", "unbatched", "torch_levels"
FRAMEWORK = "dynet"  # and all its modes, whose names begin so
COLUMNS = (
    "model, batch",
    "`acrobat`",
    "best DyNet",
    "`acrobat` over it",
    "over `torch_levels`",
    "over `acrobat_ahead`",
    "over `unbatched`",
)


def tables(run: Run) -> str:
    """All of the page, as Markdown."""
    gains = [gain(systems[STRATEGY], best_mode(systems)[1]) for _, systems in rows_of(run)]
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    said = f"Over the best DyNet: geometric mean {mean:.2f} over {len(gains)} rows, least "
    lines = [*head(*COLUMNS), *map(_row, rows_of(run)), "", f"{said}{min(gains):.2f}.", ""]
    return "\n".join([*lines, *_phases(run)]) + "\n"


def rows_of(run: Run) -> Iterator[tuple[Workload, Mapping[str, Rounds]]]:
    """Small mini-batches before large ones, models in the paper's order."""
    by_row = {(one.batch_size, MODELS.index(one.model)): one for one in run}
    for key in sorted(by_row):
        yield by_row[key], run[by_row[key]]


def best_mode(systems: Mapping[str, Rounds]) -> tuple[str, Rounds]:
    """The fastest of DyNet's modes."""
    modes = [one for one in systems.items() if one[0].startswith(FRAMEWORK)]
    return max(modes, key=lambda mode: speed(mode[1]))


def _row(found: tuple[Workload, Mapping[str, Rounds]]) -> str:
    workload, systems = found
    ours, (mode, peer) = systems[STRATEGY], best_mode(systems)
    others = [gain_words(ours, systems[n]) if n in systems else "" for n in (BY_HAND, AHEAD, NONE)]
    return row(
        f"{workload.model}, {workload.batch_size}",
        speed_words(ours),
        f"{speed_words(peer)} ({mode})",
        f"**{gain_words(ours, peer)}**",
        *others,
    )


def _phases(run: Run) -> list[str]:
    """Where the time of the largest mini-batches goes."""
    largest = max(one.batch_size for one in run)
    shown = {w.model: systems for w, systems in rows_of(run) if w.batch_size == largest}
    wanted = (
        (STRATEGY, "construct", ("construct",)),
        (STRATEGY, "schedule and layout", ("schedule",)),
        (STRATEGY, "compute", ("forward",)),
        (AHEAD, "construct", ("construct",)),
        (AHEAD, "schedule and layout", ("schedule",)),
        (AHEAD, "compute", ("forward",)),
        (FRAMEWORK, "construct", ("construct",)),
        (FRAMEWORK, "schedule and compute", ("forward",)),
    )
    return head(f"a mini-batch of {largest}, ms", *shown) + [
        row(f"`{name}`: {words}", *(phase_words(s[name], phases) for s in shown.values()))
        for name, words, phases in wanted
    ]
