"""Learned state machine on the mini-batch that trained it: states, choices and their counts.

    figure: {kind: state_machine} # the counts have one model, dataset and batch size

Each state has a row, in the order of first visits, so that time runs downward. Transitions to rows
below are on the right, those back to rows above on the left. Each is labeled with the executed
type, which also determines its color and line style.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from textwrap import shorten
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dynbatch.harness.contracts.policy import LearnedPolicy
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.policies.fsm.machine import StateMachine
from dynbatch.harness.values.graph import Graph
from dynbatch.plots.captions import build_title
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.figures import page
from dynbatch.plots.figures.graph import build_counted_graph, draw_failed

END = "end"  # follows the last state
CAPTION = (
    "A state names the types that are ready, the most frequent first; an arrow names the executed"
    " type. Numbers: counts."
)
# Okabe and Ito's colors that are visible on white; 4 line styles make 28 different looks.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#B0559A", "#000000", "#A87400", "#3A8FC4")
LINES = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1.5, 1)))
# MAX_SWING_IN: of an arc over one row; n rows swing n**BULGE times as far.
ROW_IN, MAX_SWING_IN, BULGE = 0.4, 0.3, 0.85


def draw(experiment: Experiment) -> tuple[Figure, pd.DataFrame]:
    """Draw the figure; its numbers have a row for each transition."""
    counted = build_counted_graph(experiment)
    if counted is None:
        return draw_failed(experiment)
    graph, _, learned = counted
    machine = learned[0] if learned else None
    return draw_machine(machine, graph, build_title(experiment)), list_transitions(machine, graph)


def list_transitions(machine: LearnedPolicy | None, graph: Graph) -> pd.DataFrame:
    """List each transition on a graph: state, executed type, next state, number of times."""
    if not isinstance(machine, StateMachine):
        raise ConfigError("only a state machine can be drawn; choose policy=fsm_sort, for example")
    decided = machine.run(graph).decided.tolist()
    takes = {s: machine.type_names[machine.choices[s]] if s >= 0 else "" for s in decided}
    names = {s: machine.describe_state(s) for s in decided}
    counts = Counter(itertools.pairwise([*decided, None]))
    rows = [(names[a], takes[a], names.get(b, END), n) for (a, b), n in counts.items()]
    return pd.DataFrame(rows, columns=["state", "takes", "next_state", "n_times"])


def draw_machine(machine: LearnedPolicy | None, graph: Graph, title: str) -> Figure:
    transitions = list_transitions(machine, graph)
    n_visits = transitions.groupby("state", sort=False).n_times.sum()
    labels = [*(f"{shorten(str(state), 45)} ({n})" for state, n in n_visits.items()), END]
    rows = {state: row for row, state in enumerate([*n_visits.index, END])}
    transitions["text"] = (transitions.takes + " " + transitions.n_times.astype(str)).str.strip()
    transitions["begin"] = transitions.state.map(rows)
    transitions["end"] = transitions.next_state.map(rows)
    transitions["swing"] = (transitions.end - transitions.begin).abs().clip(lower=0.7) ** BULGE
    half = max(map(page.measure_text, labels)) / 2 + 0.1
    room = max(page.measure_text(text, page.SMALL_PT) for text in transitions.text) / 2 + 0.1
    widest = (page.WIDTH_IN / 2 - half - room) / transitions.swing.max()
    transitions["swing"] *= min(MAX_SWING_IN, widest)
    height = len(rows) * ROW_IN
    figure = page.start_figure(height + 0.1)
    axes = page.place_axes(figure, 0, 0.1, page.WIDTH_IN, height)
    axes.set(xlim=(-page.WIDTH_IN / 2, page.WIDTH_IN / 2), ylim=(len(rows) - 0.5, -0.5))
    axes.set_axis_off()
    axes.barh([*rows.values()], 2 * half, 0.6, -half, color="#F2F2F2", ec="#444444", lw=0.7)
    for row, label in enumerate(labels):
        axes.text(0, row, label, ha="center", va="center_baseline")
    styles = zip(itertools.cycle(COLORS), itertools.cycle(LINES), strict=False)
    looks = dict(zip(transitions.takes.unique(), styles, strict=False))
    for transition in transitions.itertuples():
        _draw_transition(axes, transition, half, *looks[transition.takes])
    page.add_title(figure, title)
    page.add_caption(figure, CAPTION)
    return figure


def _draw_transition(axes: Axes, transition: Any, half: float, color: str, line: object) -> None:
    """Draw an arc between states, with its type in the middle.

    Args:
        half: half the width of state boxes in inches.
    """
    begin, end, swing = transition.begin, transition.end, transition.swing
    side, is_loop = 1 if end >= begin else -1, begin == end
    tilt = 0.15 * side * (-1 if is_loop else 1)  # start below the middle, end above it
    begin, end = begin + tilt, end - tilt
    # arc3 puts its control point this fraction of the distance away from the middle.
    curvature = -2 * swing / abs(end - begin) / ROW_IN
    arrow = {
        "arrowstyle": "-|>", "connectionstyle": f"arc3,rad={curvature}", "mutation_scale": 8,
        "shrinkA": 0, "shrinkB": 0, "color": color, "linestyle": line,
        "linewidth": 0.8 + 0.22 * math.log2(transition.n_times),
    }  # fmt: skip
    axes.annotate("", (side * half, end), (side * half, begin), arrowprops=arrow, zorder=1)
    # Next to the boxes, and next to a loop, which is too small for its label.
    width = page.measure_text(transition.text, page.SMALL_PT) / 2
    offset = half + max(swing, width + (swing if is_loop else 0.06))
    axes.text(
        side * offset, (begin + end) / 2, transition.text,
        ha="center", va="center", fontsize=page.SMALL_PT, color=color, zorder=2,
        bbox={"boxstyle": "round,pad=0.08", "facecolor": "white", "edgecolor": "none"},
    )  # fmt: skip
