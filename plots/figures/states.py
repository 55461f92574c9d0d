"""A learned state machine on the mini-batch that it learned on: states, choices, how often.

show: {graph: plain, policy: fsm_sort}   # the sweep has one model, data set and batch size
"""

from __future__ import annotations

from pathlib import Path

from harness.errors import ConfigError
from harness.policies.fsm.machine import StateMachine
from harness.values.graph import Graph
from plots.drawing.saving import FIXED_METADATA
from plots.drawing.state_machine import draw_machine, visits_of
from plots.drawing.words import draw_words
from plots.numbers.artefact import Artefact
from plots.numbers.counted_graph import counted_graph, failures
from plots.numbers.tidy import Row, write_rows
from plots.words.notes import title_of


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv, a row per transition that is drawn."""
    (stem,) = artefact.presentation.stems
    policy = artefact.presentation.show["policy"]
    paths = [results_dir / f"{stem}{suffix}" for suffix in FIXED_METADATA]
    shown, failed = counted_graph(artefact), failures(artefact)
    if shown is None or policy in failed:
        reasons = {row.policy: f"{row.status}: {row.reason}" for row in failed.values()}
        for path in paths:
            draw_words(reasons, path, title_of(artefact))
        rows = [{"policy": row.policy, "status": row.status} for row in failed.values()]
        write_rows(results_dir / f"{stem}.csv", rows)
        return
    machine = shown.schedulers[policy].learned
    if not isinstance(machine, StateMachine):
        raise ConfigError(f"{artefact.name} draws a state machine; give show a learned policy")
    for path in paths:
        draw_machine(machine, shown.graph, path)
    write_rows(results_dir / f"{stem}.csv", _rows(machine, shown.graph))


def _rows(machine: StateMachine, graph: Graph) -> list[Row]:
    return [
        {
            "state": _words(machine, source),
            "takes": machine.type_names[machine.choices[source]] if source >= 0 else "",
            "next_state": _words(machine, target),
            "n_times": count,
        }
        for (source, target), count in visits_of(machine, graph).transitions.items()
    ]


def _words(machine: StateMachine, state: int) -> str:
    return machine.state_in_words(state) if state >= 0 else "other states or the end"
