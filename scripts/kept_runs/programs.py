"""ACRoBat's seven models: its strategy beside DyNet, PyTorch and no batching."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
STRATEGY, AHEAD, INTERPRETED = "acrobat", "acrobat_ahead", "acrobat_interpreted"
FRAMEWORK = "dynet"  # and all its modes, whose names begin so
BY_HAND, EAGER, NONE, CEILING = "torch_levels", "torch_eager", "unbatched", "products"
COLUMNS = (
    "model, batch",
    "`acrobat`",
    "best DyNet",
    "`acrobat` over it",
    "over `torch_levels`",
    "over `torch_eager`",
    "over `unbatched`",
)
OWN_COLUMNS = (
    "model, batch",
    "over `acrobat_ahead`",
    "over `acrobat_interpreted`",
    "of `products`",
)
SIZES = ("small", "large")
Row = tuple[Workload, Mapping[str, Rounds]]


def tables(run: Run) -> str:
    """All of the page, as Markdown."""
    lines: list[str] = []
    for size, rows in by_size(run).items():
        lines += [f"Sizes: {size}.", "", *_peers(rows), "", *_said(rows), ""]
        if any(name in systems for _, systems in rows for name in (AHEAD, INTERPRETED, CEILING)):
            lines += [*_own(rows), ""]
        lines += [*_phases(rows), ""]
    return "\n".join(lines)


def by_size(run: Run) -> dict[str, Sequence[Row]]:
    """The smallest hidden size of every model, and all others."""
    least: dict[str, int] = {}
    for one in run:
        least[one.model] = min(one.hidden_size, least.get(one.model, one.hidden_size))
    rows = list(rows_of(run))
    small = [found for found in rows if found[0].hidden_size == least[found[0].model]]
    large = [found for found in rows if found[0].hidden_size != least[found[0].model]]
    return {size: of_it for size, of_it in zip(SIZES, (small, large), strict=True) if of_it}


def rows_of(run: Run) -> Iterator[Row]:
    """Small mini-batches before large ones, models in the paper's order."""
    for one in sorted(run, key=lambda w: (w.batch_size, MODELS.index(w.model), w.hidden_size)):
        yield one, run[one]


def best_mode(systems: Mapping[str, Rounds]) -> tuple[str, Rounds]:
    """The fastest of DyNet's modes."""
    modes = [one for one in systems.items() if one[0].startswith(FRAMEWORK)]
    return max(modes, key=lambda mode: speed(mode[1]))


def best_peer(systems: Mapping[str, Rounds]) -> tuple[str, Rounds]:
    """The fastest of all frameworks."""
    torch = [(name, systems[name]) for name in (BY_HAND, EAGER) if name in systems]
    return max([best_mode(systems), *torch], key=lambda peer: speed(peer[1]))


def _peers(rows: Sequence[Row]) -> list[str]:
    return [*head(*COLUMNS), *map(_row, rows)]


def _row(found: Row) -> str:
    workload, systems = found
    ours, (mode, peer) = systems[STRATEGY], best_mode(systems)
    return row(
        _name(workload),
        speed_words(ours),
        f"{speed_words(peer)} ({mode})",
        f"**{gain_words(ours, peer)}**",
        *(_over(systems, name) for name in (BY_HAND, EAGER, NONE)),
    )


def _said(rows: Sequence[Row]) -> list[str]:
    """The mean over all rows, with the one that is least."""
    return [
        f"Over the best {whom}: {_mean(gain(s[STRATEGY], best(s)[1]) for _, s in rows)}."
        for whom, best in (("DyNet", best_mode), ("of DyNet and PyTorch", best_peer))
    ]


def _mean(gains: Iterable[float]) -> str:
    found = list(gains)
    mean = math.exp(sum(map(math.log, found)) / len(found))
    return f"geometric mean {mean:.2f} over {len(found)} rows, least {min(found):.2f}"


def _own(rows: Sequence[Row]) -> list[str]:
    """What live rounds and compiled programs are worth, and how far the machine's products go."""
    return [
        *head(*OWN_COLUMNS),
        *(
            row(_name(w), *(_over(systems, name) for name in (AHEAD, INTERPRETED, CEILING)))
            for w, systems in rows
        ),
    ]


def _name(workload: Workload) -> str:
    return f"{workload.model}, {workload.batch_size}"


def _over(systems: Mapping[str, Rounds], name: str) -> str:
    return gain_words(systems[STRATEGY], systems[name]) if name in systems else ""


def _phases(rows: Sequence[Row]) -> list[str]:
    """Where the time of the largest mini-batches goes."""
    largest = max(one.batch_size for one, _ in rows)
    shown = {w.model: systems for w, systems in rows if w.batch_size == largest}
    wanted = (
        (STRATEGY, "construct", ("construct",)),
        (STRATEGY, "schedule and layout", ("schedule",)),
        (STRATEGY, "compute", ("forward",)),
        (FRAMEWORK, "construct", ("construct",)),
        (FRAMEWORK, "schedule and compute", ("forward",)),
    )
    return head(f"a mini-batch of {largest}, ms", *shown) + [
        row(f"`{name}`: {words}", *(phase_words(s[name], phases) for s in shown.values()))
        for name, words, phases in wanted
    ]
