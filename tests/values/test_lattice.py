"""Validation of lattices, whose errors name the state and the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dynbatch.harness.errors import DataError
from dynbatch.harness.values.instances import Lattice

GOOD = {
    "tags": [0, 1, 2, 1],
    "arc_start": [0, 0, 1, 2, 4],
    "sources": [0, 1, 2, 0],
    "tokens": [5, 6, 7, 30],
}


def lattice(**changes: Any) -> Lattice:
    return Lattice(**(GOOD | changes))


def test_arrays_are_read_only_and_characters_come_first() -> None:
    good = lattice()
    assert (good.n_states, good.n_arcs) == (4, 4)
    assert good.is_character.tolist() == [True, True, True, False]
    with pytest.raises(ValueError, match="read-only"):
        good.tags[0] = 1
    assert good.sources.dtype == np.int32


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tags": [0], "arc_start": [0, 0], "sources": [], "tokens": []}, "1 states"),
        ({"arc_start": [0, 0, 1, 4]}, "arc_start has 4 entries"),
        ({"arc_start": [0, 0, 1, 2, 3]}, "from 0 to the number of arcs, 4"),
        ({"tokens": [5, 6, 7]}, "4 sources and 3 tokens"),
        ({"arc_start": [0, 1, 1, 2, 4]}, "state 0 has 1 incoming arcs"),
        ({"arc_start": [0, 0, 2, 2, 4], "sources": [0, 0, 2, 0]}, "state 2 has no incoming arc"),
        ({"sources": [0, 1, 3, 0]}, "into state 3 comes from state 3"),
        ({"sources": [0, 2, 2, 0]}, "into state 2 comes from state 2"),
        ({"sources": [0, 1, 2, -1]}, "comes from state -1"),
        ({"sources": [0, 1, 0, 2]}, "state 3 has a misplaced character arc"),
        ({"sources": [0, 1, 2, 2]}, "state 3 has a misplaced character arc"),
        ({"tokens": [5, 6, 7, -1]}, "token -1"),
    ],
)
def test_invalid_lattice_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        lattice(**changes)
