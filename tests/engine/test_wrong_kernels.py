"""Kernels' text with one thing wrong, in Triton's interpreter: each is found by what it computes.

tests/engine/test_device_programs.py has kinds that are wrong, test_persistent.py walks and
barriers, which the interpreter passes over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import harness.engine.engine
from harness.contracts.model import ModelSizes
from harness.engine.backends.cuda.backend import Backend
from harness.engine.switches import Switches
from harness.models.tree_lstm import TreeLSTM
from tests.support.drawn_trees import trees
from tests.support.engine_models import EXAMPLES
from tests.support.small_tiles import SmallTiles, wrong

SIZES = ModelSizes(5, {"words": 11, "classes": 5}, embedding_size=5)
LEAVES = (5, 3)

# What is written, and what is there instead: everywhere, in the kernels that have it.
CHANGES = {
    "the other child": (r"rows \* 2 \+ 1,", "rows * 2,"),
    "the other child's block of weights": (r"\(5 \+ k\[:, None\]\)", "(0 + k[:, None])"),
    "the other slot's block, backward": (r"\(5 \+ cols\[None, :\]\) \*", "(0 + cols[None, :]) *"),
    "the next gate": (r"\* 15 \+ 10 \+ cols", "* 15 + 5 + cols"),
    "no mask of readers": (r"mask=o\d+\[:, None\]", "mask=live[:, None]"),
    "no mask of the inner dimension": (r"\(k < 5\)", "(k < 4)"),
    "no mask of columns": (r"inside = \(cols < 5\)", "inside = (cols < 4)"),
    "a row less": (r"live = m < n\b", "live = m < n - 1"),
    "a tile less": (r"range\(mine, n_tiles,", "range(mine, n_tiles - 1,"),
    "a term less, of few rows": (r"ws0 \+= a", "ws0 += 0 * a"),
    "a term less, of many rows": (r"s0 = tl\.dot\(a, w, s0,", "s0 = tl.dot(a, w, s0 * 0,"),
    "an instruction less": (r"range\(first, last\)", "range(first + 1, last)"),
    "rows as states": (r"\bstates\[:, None\]", "rows[:, None]"),
}


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[SmallTiles]]:
    if (reason := Backend.why_not(Switches(), "cpu")) is not None:
        pytest.skip(reason)

    class Mine(SmallTiles):
        pass

    monkeypatch.setattr(harness.engine.engine, "choose_backend", lambda *_: Mine)
    with np.errstate(all="ignore"):
        yield Mine


def replaced(old: str, new: str, count: list[int]) -> Callable[[str], str]:
    """A change of a kernel's text; count: of places, in all kernels."""

    def change(text: str) -> str:
        changed, n = re.subn(old, new, text)
        count.append(n)
        return changed

    return change


def test_nothing_is_wrong_where_nothing_is_changed(interpreted: type[SmallTiles]) -> None:
    assert wrong(TreeLSTM(SIZES), trees(SIZES, LEAVES), update=True) == []


@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_text_is_found(interpreted: type[SmallTiles], change: str) -> None:
    count: list[int] = []
    interpreted.change = staticmethod(replaced(*CHANGES[change], count))
    try:
        found = wrong(TreeLSTM(SIZES), trees(SIZES, LEAVES), update=True)
    except IndexError:
        found = ["a row that there is not"]
    assert found
    assert sum(count) > 0


def test_an_edge_that_is_left_out_is_found(interpreted: type[SmallTiles]) -> None:
    count: list[int] = []
    interpreted.change = staticmethod(
        replaced(r"for j in range\(0, t", "for j in range(1, t", count)
    )
    assert wrong(*EXAMPLES["child_sum"])
    assert sum(count) > 0
