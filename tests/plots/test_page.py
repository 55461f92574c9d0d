"""Figures fit the page: short captions, names without overlap, distinct looks."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.values.paths import CONF_DIR, ROOT
from dynbatch.plots.figures import page


def test_a_caption_of_more_than_three_lines_is_refused() -> None:
    figure = page.start_figure(2.0)
    sentence = "Median of three interleaved rounds on one core. "
    page.add_caption(figure, sentence * 6)
    lines = figure.texts[-1].get_text().split("\n")
    assert len(lines) == page.CAPTION_LINES
    assert all(page.measure_text(line, page.SMALL_PT) <= page.WIDTH_IN for line in lines)
    with pytest.raises(ConfigError, match="a caption has 4 lines: expected at most 3"):
        page.add_caption(figure, sentence * 9)


def test_a_title_has_one_line() -> None:
    figure = page.start_figure(2.0)
    page.add_title(figure, "Tree-LSTM: training time per epoch against hidden size")
    for title in ("two\nlines", "a long title " * 12):
        with pytest.raises(ConfigError, match="longer than one line"):
            page.add_title(figure, title)


@given(st.lists(st.floats(-5, 5), max_size=12), st.floats(0.01, 1))
def test_places_are_apart_and_in_order(wanted: list[float], gap: float) -> None:
    places = page.spread(wanted, gap)
    order = sorted(range(len(wanted)), key=lambda n: wanted[n])
    steps = [places[b] - places[a] for a, b in pairwise(order)]
    assert all(step >= gap - 1e-9 for step in steps)
    assert sum(places) == pytest.approx(sum(wanted), abs=1e-6)
    inside = page.spread(wanted, gap, -5 - gap * len(wanted), 5 + gap * len(wanted))
    assert list(inside) == pytest.approx(list(places))


def test_places_stay_between_their_ends() -> None:
    assert list(page.spread([0.0, 0.1, 9.0], 1, 0, 3)) == [0, 1, 3]


def test_every_system_is_distinguishable_in_grayscale() -> None:
    systems = read_systems(CONF_DIR)
    for kind in ("framework", "strategy"):
        names = [system.name for system in systems if system.kind == kind]
        looks = page.find_looks(names, systems).values()
        assert len({(look.marker, look.line) for look in looks}) == len(names)
    assert len(page.MARKERS) > 12, "as many curves of a panel differ in their markers alone"


def test_no_window_system_and_no_style_of_the_user_decides_a_picture(tmp_path: Path) -> None:
    """As in a notebook, whose backend is not installed here, and with a style of the user's."""
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\nfont.size: 30\n")
    program = (
        "import sys; from pathlib import Path;"
        " from dynbatch.plots.figures.page import start_figure;"
        " from dynbatch.plots.write import save_figure; figure = start_figure(2.0);"
        " figure.add_axes((0.2, 0.2, 0.7, 0.7)).plot([1, 2]);"
        " save_figure(figure, Path(sys.argv[1]))"
    )
    pictures = []
    unusual = {"MPLBACKEND": "module://nowhere.inline", "MATPLOTLIBRC": str(tmp_path)}
    for name, own in (("plain", {}), ("own", unusual)):
        out = tmp_path / f"{name}.png"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MPL", "MATPLOT"))}
        environment |= {"PYTHONPATH": str(ROOT)} | own
        subprocess.run([sys.executable, "-c", program, str(out)], env=environment, check=True)
        pictures.append(out.read_bytes())
    assert pictures[0] == pictures[1]


def test_a_style_of_the_user_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_bytes(b"font.size: 30\n\xff: 3\n")
    command = ["dynbatch.harness.commands.schedule", "dataset=sst_synthetic", "batch_size=2"]
    command = [sys.executable, "-m", *command, "policy=agenda", "--draw=graph.png"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("bench-schedule: matplotlib cannot read its matplotlibrc ('utf-8' codec")
    assert "Traceback" not in done.stderr
