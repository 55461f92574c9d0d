"""A learned state machine on the mini-batch that it learned on: states, choices, how often.

show: {graph: plain, policy: fsm_sort}   # the sweep has one model, data set and batch size
"""

from __future__ import annotations

from pathlib import Path

from harness.errors import ConfigError
from harness.policies.state_machine import StateMachine
from plots.artefact import Artefact
from plots.counted_graph import counted_graph
from plots.draw_state_machine import draw_machine, visits_of
from plots.style import FIXED_METADATA
from plots.tidy import write_rows


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv, a row per transition that is drawn."""
    (stem,) = artefact.presentation.stems
    shown = counted_graph(artefact)
    machine = shown.schedulers[artefact.presentation.show["policy"]].learned
    if not isinstance(machine, StateMachine):
        raise ConfigError(f"{artefact.name} draws a state machine; give show a learned policy")
    (results_dir / stem).parent.mkdir(parents=True, exist_ok=True)
    for suffix in FIXED_METADATA:
        draw_machine(machine, shown.graph, results_dir / f"{stem}{suffix}")
    rows = [
        {
            "state": _words(machine, source),
            "takes": machine.type_names[machine.choices[source]] if source >= 0 else "",
            "next_state": _words(machine, target),
            "n_times": count,
        }
        for (source, target), count in visits_of(machine, shown.graph).transitions.items()
    ]
    write_rows(results_dir / f"{stem}.csv", rows)


def _words(machine: StateMachine, state: int) -> str:
    return machine.state_in_words(state) if state >= 0 else "other states or the end"
