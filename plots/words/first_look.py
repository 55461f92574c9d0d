"""What a first look says: a table of systems in text, and one sentence that is computed from it."""

from __future__ import annotations

from collections.abc import Iterator

from harness.records.stats import Summary
from plots.numbers.artefact import Artefact
from plots.numbers.best_peer import BestPeer, best_peer, peer_names
from plots.numbers.fastest import TIME, TIMED_INSTANCES, fastest_first
from plots.numbers.points import Point, measure_of, speedup_of
from plots.numbers.series import SYSTEMS
from plots.numbers.table import DAGGER, TIMES
from plots.words.trial_cells import find, measured_cell, ratio_cell

HEAD = ("system", "instances/s", f"engine over it ({TIMES})", "batches")


def lines_of(artefact: Artefact) -> Iterator[str]:
    """The table, the fastest system first, and the sentence below it."""
    base, *others = artefact.compare[SYSTEMS]
    names = [base, *others]
    ranked = [str(point.settings["system"]) for point, _ in fastest_first(artefact.points, names)]
    rows = [HEAD, *(_row(artefact, base, name) for name in dict.fromkeys([*ranked, *names]))]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEAD))]
    for row in rows:
        first, *cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join([row[0].ljust(len(first)), *cells]).rstrip()
    yield ""
    yield sentence_of(artefact)


def _row(artefact: Artefact, base: str, system: str) -> tuple[str, ...]:
    point, ours = find(artefact, system=system), find(artefact, system=base)
    ratio = ratio_cell(speedup_of(point, ours, TIME, TIMED_INSTANCES))
    batches = measure_of(point, "n_batches").summary
    return (
        artefact.label(system),
        str(measured_cell(measure_of(point, "throughput"))),
        "1" if system == base else str(ratio),
        _counted(batches.median) if batches else "not told",
    )


def sentence_of(artefact: Artefact) -> str:
    """What was learned."""
    base, *_ = artefact.compare[SYSTEMS]
    best = best_peer(artefact.points, base, peer_names(artefact.conf_dir))
    if best is None or best.ratio.summary is None:
        return "Nothing was learned: the engine, or every peer, has no number; see above."
    point = find(artefact, system=base)
    names = ", ".join(best.ratio.warnings)
    doubt = f" ({DAGGER}: measured with warnings: {names})" if names else ""
    return f"{_gain(artefact, base, best, best.ratio.summary)}{_why(point)}{doubt}"


def _gain(artefact: Artefact, base: str, best: BestPeer, ratio: Summary) -> str:
    ends = [end for end in (ratio.low, ratio.high) if end is not None]
    spread = f" ({' to '.join(f'{end:.2f}' for end in ends)})" if ends else ""
    ours, peer = artefact.label(base), artefact.label(best.system)
    of = f"the best of {best.n_peers} peers, {peer}" if best.n_peers > 1 else f"its peer, {peer}"
    if min([ratio.median, *ends]) <= 1 <= max([ratio.median, *ends]):
        return f"{ours} and {of} cannot be told apart here: {ratio.median:.2f}{spread}."
    if ratio.median > 1:
        return f"{ours} trains {ratio.median:.2f} times as fast as {of}{spread}."
    return f"{peer} is faster: {ours} makes {ratio.median:.2f} of it{spread}."


def _why(point: Point | None) -> str:
    """In how many batches it runs, of the first round that tells: they are counted."""
    for record in point.records if point is not None else ():
        if record is not None and record.n_batches and record.lower_bound:
            return (
                f" It runs a mini-batch in {_counted(record.n_batches)} batches; no order needs"
                f" fewer than {_counted(record.lower_bound)}."
            )
    return ""


def _counted(mean: float) -> str:
    """A count that is a mean over mini-batches: 20, or 20.5."""
    return f"{mean:,.1f}".removesuffix(".0")
