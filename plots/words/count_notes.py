"""Footnotes on batch counts: of which graph, from which data, and how policies learned."""

from __future__ import annotations

from collections.abc import Collection

from harness.contracts.policy import LearningSettings
from harness.records.count_row import CountRow, FailedCount
from plots.numbers.artefact import Artefact

VERTEX_NOTE = (
    "Classifier and losses are vertices of the graph, which policies batch like all others."
)
RELEASED_NOTE = (
    "Counted as ED-Batch's release does: a cell is one node and one more for each of its outputs, "
    "and every parameter outside of cells is a node that is a batch by itself under any policy."
)


def counting_notes(artefact: Artefact) -> list[str]:
    """Empty where an artefact counts nothing and no system learned."""
    if not artefact.sweeps:
        return [note for note in [systems_note(artefact)] if note]
    graph = str(artefact.presentation.show.get("graph", "released"))
    return [
        {"released": RELEASED_NOTE, "vertex": VERTEX_NOTE}.get(graph, ""),
        data_note(artefact),
        learning_note(artefact),
    ]


def systems_note(artefact: Artefact) -> str:
    """How systems learned their policy; empty where none did."""
    learned = [record for record in artefact.records if record.learn_s is not None]
    names = sorted({artefact.label(record.trial.system) for record in learned})
    settings = sorted({_words(LearningSettings(**r.config["learning"])) for r in learned})
    if not settings:
        return ""
    return f"{', '.join(names)}: Q-learning on the first mini-batch, {'; '.join(settings)}."


def data_note(artefact: Artefact) -> str:
    """Which instances make a mini-batch."""
    splits = " and ".join(artefact.listed("split", "train"))
    offsets = artefact.listed("offset", "0")
    first = "the first" if offsets == ("0",) else f"those from {', '.join(offsets)} of the"
    return f"A mini-batch of size B is {first} B instances of {splits}, in the order of the file."


def learning_note(artefact: Artefact) -> str:
    """Variant, fallback, trials and seeds of learned policies; empty where there are none."""
    show = artefact.presentation.show
    shown = show.get("policies") or [show.get("policy")]
    learned = [
        (row.policy, row.learning)
        for row in artefact.counted
        if row.learning is not None and (row.policy in shown or shown == [None])
    ]
    seeds: dict[str, set[int]] = {}
    for _, learning in learned:
        seeds.setdefault(_words(learning), set()).add(learning.seed)
    if not learned:
        return ""
    policies = ", ".join(sorted({policy for policy, _ in learned}))
    settings = "; ".join(f"{words}, {_seeds(seeds[words])}" for words in sorted(seeds))
    return f"{policies}: Q-learning on the mini-batch itself, {settings}."


def missing_count_notes(artefact: Artefact) -> list[str]:
    """Why counts are missing, once per policy and reason."""
    is_released = artefact.presentation.show.get("graph", "released") == "released"
    reasons: dict[str, None] = {}
    for row in artefact.counts:
        if isinstance(row, FailedCount):
            reasons[f"{row.policy}: {row.status}: {row.reason}"] = None
        elif isinstance(row, CountRow) and row.reason_ed is not None and is_released:
            reasons[f"{row.policy}: {row.status_ed}: {row.reason_ed}"] = None
    return list(reasons)


def _words(learning: LearningSettings) -> str:
    return (
        f"variant {learning.variant}, fallback {learning.fallback}, at most {learning.trials} "
        f"trials"
    )


def _seeds(seeds: Collection[int]) -> str:
    """As "seed 0", or "seeds 0, 1, 2"."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, sorted(seeds)))}"
