"""A learned state machine as a picture: the states that a graph goes through, and what each takes.

One row a state, in the order of their first visit, so that time runs downwards. Transitions to rows
below are drawn on the right, back to rows above on the left. Each bears the type that is executed,
which also has a colour and a line style of its own.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from harness.contracts.policy import LearnedPolicy
from harness.errors import ConfigError
from harness.policies.fsm.machine import StateMachine
from harness.policies.parts.rounds import run_in_rounds
from harness.values.graph import Graph
from plots.drawing.saving import save_picture
from plots.drawing.style import use_style

MAX_STATES = 20  # rows that a page shows readably; the least visited others share one
UNSEEN, OTHERS, END = -1, -2, -3
# Okabe and Ito's colours that stand out on white, each with a line so that print needs no colour.
LOOKS = tuple(
    (color, line)
    for line in ("-", "--", "-.", ":")
    for color in ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
)
GREY = ("#777777", "-")  # where several types are taken
MAX_LETTERS, LETTER_IN, ROW_IN = 60, 0.072, 0.46
ARC_IN, BULGE = 0.3, 0.85  # how far an arc over one row swings out; over n rows n**BULGE as far


@dataclass(frozen=True, slots=True)
class Visits:
    """What a machine does on one graph.

    states: rows in the order of their first visit: numbers of states, UNSEEN, OTHERS,
    and END last.
    n_visits: of each row. transitions: how often one row follows another. n_merged: states that
    share the row OTHERS.
    """

    states: tuple[int, ...]
    n_visits: Counter[int]
    transitions: Counter[tuple[int, int]]
    n_merged: int


@dataclass(frozen=True, slots=True)
class _Picture:
    """Where things are, in inches; rows of states by number, labels of states, looks of types."""

    axes: Axes
    rows: dict[int, int]
    labels: dict[int, str]
    taken: dict[int, str]
    looks: dict[str, tuple[str, str]]
    half_width: float


def visits_of(machine: StateMachine, graph: Graph) -> Visits:
    """Follow the machine through a graph; the least visited states become one row."""
    decided = run_in_rounds(machine, graph).decided.tolist()
    n_visits = Counter(decided)
    merged = set[int]()
    if len(n_visits) > MAX_STATES:
        kept = {state for state, _ in n_visits.most_common(MAX_STATES - 1)}
        merged = set(n_visits) - kept
    shown = [*(OTHERS if state in merged else state for state in decided), END]
    return Visits(
        tuple(dict.fromkeys(shown)),
        Counter(shown[:-1]),
        Counter(itertools.pairwise(shown)),
        len(merged),
    )


def draw_machine(machine: LearnedPolicy, graph: Graph, path: Path) -> None:
    """Write the states that a machine goes through on a graph; the suffix names the format.

    Raises ConfigError for a policy that is no state machine, OutputError for a file that cannot be
    written.
    """
    if not isinstance(machine, StateMachine):
        raise ConfigError("only a state machine can be drawn; choose policy=fsm_sort, for example")
    use_style()
    visits = visits_of(machine, graph)
    picture = _picture(machine, visits)
    for state in visits.states:
        _draw_state(picture, state)
    for (source, target), count in visits.transitions.items():
        _draw_transition(picture, source, target, count)
    figure = picture.axes.figure
    assert isinstance(figure, Figure), "axes of a page, not of a part of one"
    save_picture(figure, path)


def _picture(machine: StateMachine, visits: Visits) -> _Picture:
    taken = {
        state: machine.type_names[machine.choices[state]]
        for state in visits.states
        if state not in (UNSEEN, OTHERS, END)
    }
    names = list(dict.fromkeys(taken.values()))
    labels = {state: _label(machine, visits, state) for state in visits.states}
    half_width = 0.5 * LETTER_IN * max(map(len, labels.values()), default=8) + 0.12
    n_rows = len(visits.states)
    rows = {state: row for row, state in enumerate(visits.states)}
    longest = max((abs(rows[a] - rows[b]) for a, b in visits.transitions), default=0)
    side = ARC_IN * max(longest, 0.7) ** BULGE + 0.65
    width, height = 2 * (half_width + side), n_rows * ROW_IN + 0.2
    figure = plt.figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-width / 2, width / 2)
    axes.set_ylim(-height + 0.1 + ROW_IN / 2, 0.1 + ROW_IN / 2)
    axes.set_axis_off()
    axes.set_title(
        f"{machine.name}, {machine.workload}\n{sum(visits.n_visits.values())} decisions, a row for"
        " each state; numbers: how often"
    )
    return _Picture(
        axes,
        rows,
        labels,
        taken,
        dict(zip(names, itertools.cycle(LOOKS), strict=False)),
        half_width,
    )


def _label(machine: StateMachine, visits: Visits, state: int) -> str:
    if state == END:
        return "end"
    merged = f"{visits.n_merged} other states"
    words = merged if state == OTHERS else machine.state_in_words(state)
    if len(words) > MAX_LETTERS:
        words = words[: MAX_LETTERS - 1] + "…"
    return f"{words}  ({visits.n_visits[state]})"


def _draw_state(picture: _Picture, state: int) -> None:
    y, height = -picture.rows[state] * ROW_IN, 0.6 * ROW_IN
    corner = (-picture.half_width, y - height / 2)
    box = Rectangle(
        corner, 2 * picture.half_width, height, facecolor="#F2F2F2", edgecolor="#444444"
    )
    picture.axes.add_patch(box)
    picture.axes.text(0, y, picture.labels[state], ha="center", va="center", fontsize=8)


def _draw_transition(picture: _Picture, source: int, target: int, count: int) -> None:
    """An arc that swings out the further the more rows it passes, its type in the middle."""
    rows = picture.rows
    color, line = picture.looks[picture.taken[source]] if source in picture.taken else GREY
    name = picture.taken.get(source, "")
    n_rows = abs(rows[target] - rows[source])
    side = 1 if rows[target] >= rows[source] else -1
    x, tilt = side * picture.half_width, 0.07  # leaves below and arrives above the middle
    if n_rows == 0:
        tilt = -tilt
    begin, end = -rows[source] * ROW_IN - tilt * side, -rows[target] * ROW_IN + tilt * side
    swing = ARC_IN * max(n_rows, 0.7) ** BULGE
    picture.axes.add_patch(
        FancyArrowPatch(
            (x, begin),
            (x, end),
            connectionstyle=f"arc3,rad={_curvature(begin, end, swing)}",
            arrowstyle="-|>",
            mutation_scale=9,
            shrinkA=0,
            shrinkB=0,
            color=color,
            linestyle=line,
            linewidth=0.8 + 0.25 * math.log2(count),
            zorder=1,
        )
    )
    picture.axes.text(
        x + side * swing,
        (begin + end) / 2,
        f"{name} {count}".strip(),
        ha="center" if n_rows else "left",  # a loop is too small to bear its name
        va="center",
        fontsize=6.5,
        color=color,
        bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"},
        zorder=2,
    )


def _curvature(begin: float, end: float, swing: float) -> float:
    """How arc3 wants it: its control point lies that share of the distance beside the middle."""
    return -2 * swing / abs(end - begin)
