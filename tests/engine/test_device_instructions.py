"""Instructions of device programs: which rows they cover, and how few they are."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.engine.backends.cuda.kinds import Kind, has_state_rows
from dynbatch.harness.engine.backends.cuda.model import KERNELS
from dynbatch.harness.engine.backends.cuda.module import WORDS
from dynbatch.harness.engine.backends.cuda.program import read_program
from tests.support.walked_backend import walked_setting


def test_stage_words_cover_every_row_exactly_once() -> None:
    """Instructions decoded from the words of a stage cover each function's rows exactly once."""
    setting = walked_setting("tree_lstm")
    backend: Any = setting.backend
    words = backend._prepared.programs[0]
    module = backend._preparation.modules["forward"]
    n_phases = int(words[0])
    bounds = words[1 : 2 + n_phases]
    table = words[2 + n_phases :].reshape(-1, WORDS)
    assert len(table) == bounds[-1]
    assert (np.diff(bounds) > 0).all()
    covered: dict[Kind, list[tuple[int, int]]] = {}
    for number, start, n, _, n_tiles, *rest in table.tolist():
        assert n_tiles > 0
        assert rest == [0, 0, 0]
        kind = module.entries[number].kind
        covered.setdefault(kind, []).append((start, start + n))
    for ranges in covered.values():
        ends = sorted(ranges)
        assert ends[0][0] == 0
        assert all(a[1] == b[0] for a, b in pairwise(ends))


@pytest.mark.parametrize("name", ["lattice_lstm", "lattice_gru"])
def test_a_kind_that_accesses_no_state_has_one_instruction_in_a_phase(name: str) -> None:
    """Lattices have functions whose rows are not consecutive among the rows of the states."""
    backend: Any = walked_setting(name).backend
    n_seen = 0
    for number, kernel in enumerate(KERNELS):
        module = backend._preparation.modules[kernel]
        for phase in read_program(module, backend._prepared.programs[number]):
            kinds = [instruction.kind for instruction in phase]
            without = [kind for kind in kinds if not has_state_rows(kind)]
            assert len(without) == len(set(without))
            n_seen += len(without)
    assert n_seen > 0
