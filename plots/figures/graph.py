"""Graph of a mini-batch, a panel for each policy; vertices show the numbers of their batches.

figure: {kind: graph}   # the counts have one model, dataset and batch size
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dynbatch.harness.contracts.policy import LearnedPolicy
from dynbatch.harness.counts.counting import build_scheduler
from dynbatch.harness.counts.request import GraphSource, parse_requests
from dynbatch.harness.errors import ConfigError, RecordError
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.records.tidy import PLAIN
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.schedule import Schedule
from dynbatch.plots.captions import build_title
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.figures import page

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
Looks = dict[int, dict[str, Any]]  # options of `Axes.scatter` for each type

MAX_VERTICES = 300
N_SWEEPS = 12  # pairs of an upward and a downward sweep
STEP, RISE = 0.85, 0.5  # of outputs and losses: distance to the side, and total rise
SHAPES = (("o", 1.0), ("s", 0.88), ("D", 0.84), ("h", 1.1), ("p", 1.1))  # fit two digits
LEAST_IN, MAX_IN, LAYER = 0.17, 0.22, 1.75  # between neighbors; layers over neighbors
MARKER_PT = 62.0  # marker size per inch between neighbors
PANEL_TITLE_IN, KEY_IN, N_KEYS = 0.3, 0.2, 6
COLORS = mpl.colormaps["cividis"]


def draw(experiment: Experiment) -> tuple[Figure, pd.DataFrame]:
    """Draw the figure; its numbers have a row for each policy and vertex."""
    counted, (good, failed) = build_counted_graph(experiment), split_counts(experiment)
    if counted is None:
        return draw_failed(experiment)
    graph, schedules, _ = counted
    first, statuses = good.iloc[0], failed.policy + ": " + failed.status + "."
    mini_batch = (
        f"{experiment.label(first.model)} on {first.dataset} ({first['split']}), batch size"
        f" {first.batch_size} from instance {first.offset:.0f} on. {' '.join(statuses)}"
    )
    figure = draw_schedules(graph, schedules, build_title(experiment), mini_batch)
    numbers = pd.concat([list_vertices(graph, schedules), failed]).convert_dtypes()
    return figure, numbers


def draw_failed(experiment: Experiment) -> tuple[Figure, pd.DataFrame]:
    """Draw only statuses, for policies that all failed."""
    figure, (_, failed) = page.start_figure(0.1), split_counts(experiment)
    page.add_title(figure, build_title(experiment))
    page.add_caption(figure, " ".join(failed.policy + ": " + failed.status + "."))
    return figure, failed


def split_counts(experiment: Experiment) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of successful counts, and policy, status and reason of the others."""
    counts = experiment.counts
    plain = counts[(counts.graph == PLAIN) & (counts.mini_batch == 0)]
    is_good = plain.status == "ok"
    return plain[is_good], plain.loc[~is_good, ["policy", "status", "reason"]]


def build_counted_graph(
    experiment: Experiment,
) -> tuple[Graph, dict[str, Schedule], list[LearnedPolicy]] | None:
    """Rebuild the graph of the counted mini-batch; None without a count.

    Returns:
        The graph, the schedule of each policy that was counted, and the policies that learned.

    Raises:
        RecordError: if a recorded count differs from the batches that its policy makes now.
    """
    experiment.declaration.read_keys("figure")
    good, _ = split_counts(experiment)
    if not len(good):
        return None
    (sweep,) = experiment.sweeps
    overrides = [*sweep.overrides, f"data_root={experiment.data_root}"]
    (request,) = parse_requests(overrides, Composer(experiment.conf_dir))
    graphs = GraphSource(request).build_at(request.offset)
    schedules, learned = {}, []
    for name, count in zip(good.policy, good.n_batches, strict=True):
        policy = build_scheduler(name, request.spec.learning, request.workload, graphs).plain
        schedule, _ = policy.run(graphs.plain)
        if count != schedule.n_batches:
            raise RecordError(
                f"{sweep.sweep_id}: expected {schedule.n_batches} batches of {name}, got"
                f" {count:.0f}; delete its file and count again"
            )
        schedules[name] = schedule
        learned += [policy.learned] if policy.learned else []
    return graphs.plain, schedules, learned


def list_vertices(graph: Graph, schedules: Mapping[str, Schedule]) -> pd.DataFrame:
    """List the batch of each vertex under each policy, with its type and arguments."""
    arguments = [" ".join(map(str, graph.select_args(v))) for v in range(graph.n_vertices)]
    types = [graph.type_names[t] for t in graph.types]
    vertices = {"vertex": range(graph.n_vertices), "type": types, "arguments": arguments}
    policies = {
        name: pd.DataFrame({**vertices, "status": "ok", "batch": number_batches(schedule)})
        for name, schedule in schedules.items()
    }
    return pd.concat(policies, names=["policy"]).reset_index("policy")


def number_batches(schedule: Schedule) -> Numbers:
    """Return the batch of each vertex, from 1 in order of execution."""
    batches = np.repeat(np.arange(1, schedule.n_batches + 1), np.diff(schedule.starts))
    return batches[np.argsort(schedule.order)]


def check_drawable(graph: Graph) -> None:
    if graph.n_vertices > MAX_VERTICES:
        raise ConfigError(
            f"{graph.n_vertices} vertices cannot be drawn readably: expected at most"
            f" {MAX_VERTICES}; lower batch_size or move offset to smaller instances"
        )


def draw_schedules(
    graph: Graph, schedules: Mapping[str, Schedule], title: str, mini_batch: str
) -> Figure:
    check_drawable(graph)
    places = np.stack(place_vertices(graph), axis=1)
    span, n_layers = np.ptp(places, axis=0) + 1.5
    n_rows = math.ceil(len(schedules) / max(1, int(page.WIDTH_IN / (span * LEAST_IN))))
    n_columns = math.ceil(len(schedules) / n_rows)
    unit = min(MAX_IN, max(LEAST_IN, page.WIDTH_IN / n_columns / span))
    width, height = max(span * unit, page.WIDTH_IN / n_columns), n_layers * LAYER * unit
    looks: Looks = {}
    for number, kind in enumerate(np.unique(graph.types).tolist()):
        marker, scale = SHAPES[number % len(SHAPES)]
        rim = 0.6 + 1.0 * (number // len(SHAPES))  # distinguishes equal shapes
        area = (scale * unit * MARKER_PT) ** 2
        looks[kind] = {"marker": marker, "s": area, "linewidths": rim, "edgecolors": page.INK}
    key_in = math.ceil(len(looks) / N_KEYS) * KEY_IN + 0.1
    figure = page.start_figure(n_rows * (PANEL_TITLE_IN + height) + key_in, n_columns * width)
    for number, (name, schedule) in enumerate(schedules.items()):
        row, column = divmod(number, n_columns)
        top = row * height + (row + 1) * PANEL_TITLE_IN
        axes = page.place_axes(figure, column * width, top, span * unit, height)
        axes.set_title(f"{name}: {schedule.n_batches} batches")
        axes.set_axis_off()
        _draw_panel(axes, graph, schedule, places, looks)
    keys = [
        axes.scatter([], [], facecolors="white", label=graph.type_names[kind], **look)
        for kind, look in looks.items()
    ]
    figure.legend(
        handles=keys, ncols=N_KEYS, loc="lower left", frameon=False, borderaxespad=0,
        bbox_to_anchor=(0, 0.1 / figure.get_figheight()), borderpad=0.1, handletextpad=0.3,
    )  # fmt: skip
    page.add_title(figure, title)
    page.add_caption(figure, f"Number and shade: batch in order of execution. {mini_batch}")
    return figure


def _draw_panel(axes: Axes, graph: Graph, schedule: Schedule, places: Floats, looks: Looks) -> None:
    """Draw edges, then vertices by type, then the numbers of their batches."""
    users = np.repeat(np.arange(graph.n_vertices), np.diff(graph.arg_start))
    x_and_y = np.stack([places[graph.args], places[users]]).transpose(2, 0, 1)
    axes.plot(*x_and_y, color="#999999", linewidth=0.7, zorder=1)
    batches = number_batches(schedule)
    shades = (batches - 1) / max(1, schedule.n_batches - 1)
    for kind, look in looks.items():
        members = graph.types == kind
        axes.scatter(*places[members].T, facecolors=COLORS(shades[members]), zorder=2, **look)
    for (x, y), batch, shade in zip(places, batches, shades, strict=True):
        color = "white" if shade < 0.5 else "black"
        axes.text(x, y, str(batch), ha="center", va="center", fontsize=page.SMALL_PT, color=color)
    (left, bottom), (right, top) = places.min(axis=0) - 0.75, places.max(axis=0) + 0.75
    axes.set(xlim=(left, right), ylim=(bottom, top))


def place_vertices(graph: Graph) -> tuple[Floats, Floats]:
    """Return x and y of each vertex.

    Layers are at distance 1 and count from the roots; neighbors in a layer are at least 1 apart.
    Sources are next to each other in their order; every other vertex is above the middle of its
    arguments. Graphs that are not forests are improved by sweeps of averaging over neighbors
    (Sugiyama's barycenters). Outputs and losses are next to their vertex: on the right if it is a
    second or later argument, otherwise on the left, where its edge does not cross them.
    """
    n, host, n_args = graph.n_vertices, _find_hosts(graph), np.diff(graph.arg_start)
    is_core = host == np.arange(n)
    core: list[int] = np.flatnonzero(is_core).tolist()
    depth, side = np.zeros(n, dtype=np.int64), np.full(n, -STEP)
    for v in reversed(core):
        args = graph.select_args(v)
        side[args[1:]] = STEP
        depth[args] = np.maximum(depth[args], depth[v] + 1)
    room, x, free = side * (np.bincount(host, minlength=n) - 1.0), np.zeros(n), 0.0
    for v in core:
        if n_args[v]:
            x[v] = x[graph.select_args(v)].mean()
        else:
            x[v] = free - min(room[v], 0)
            free = x[v] + max(room[v], 0) + 1
    users = np.repeat(np.arange(n), n_args)
    lower, upper = graph.args[is_core[users]], users[is_core[users]]
    is_forest = np.bincount(lower, minlength=1).max() <= 1
    layers = [np.flatnonzero(is_core & (depth == level)) for level in range(depth.max() + 1)]
    _separate(x, layers, room)
    for ends, others in [(upper, lower), (lower, upper)] * (0 if is_forest else N_SWEEPS):
        means = pd.Series(x[others]).groupby(ends).mean()
        x[means.index] = means
        _separate(x, layers, room)
    y = (depth.max() - depth).astype(np.float64)
    for v in core:
        beside = np.flatnonzero(host == v)[1:]
        steps = np.arange(1, len(beside) + 1)
        x[beside] = x[v] + side[v] * steps
        y[beside] = y[v] + RISE * steps / max(1, len(beside))
    return x - x.min(), y


def _find_hosts(graph: Graph) -> Numbers:
    """Return the vertex that each vertex is drawn next to; other vertices map to themselves.

    A type is drawn next to its argument if it has one argument and is used by nothing, or only by
    other such types.
    """
    n_args = np.diff(graph.arg_start)
    users, used = np.repeat(graph.types, n_args), graph.types[graph.args]
    single = set(graph.types.tolist()) - set(graph.types[n_args != 1].tolist())
    beside: set[int] = set()
    while new := {t for t in single - beside if set(users[used == t].tolist()) <= beside}:
        beside |= new
    host = np.arange(graph.n_vertices)
    for v in np.flatnonzero(np.isin(graph.types, list(beside))).tolist():
        host[v] = host[graph.select_args(v)[0]]
    return host


def _separate(x: Floats, layers: Sequence[Numbers], room: Floats) -> None:
    """Move the vertices of each layer apart.

    Args:
        x: positions, changed in place.
        layers: vertices of each layer.
        room: space that a vertex needs to its right, or, if negative, to its left.
    """
    for members in layers:
        order = members[np.argsort(x[members], kind="stable")]
        gaps = 1 + np.maximum(room[order], 0)[:-1] - np.minimum(room[order], 0)[1:]
        x[order] = page.spread(x[order], gaps)
