"""Graphs of sentences, joined from blocks of vertices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.harness.models.parser import Parser
from dynbatch.harness.models.parts.chains import NONE, VertexBlock, build_block, join_blocks
from tests.support.engine_models import EXAMPLES


@st.composite
def drawn_blocks(draw: st.DrawFn) -> list[VertexBlock]:
    """Draw blocks of any number of slots, some of them empty."""
    blocks: list[VertexBlock] = []
    for type_id in range(1, draw(st.integers(1, 4)) + 1):
        base = blocks[-1].end if blocks else 0
        n, n_slots = draw(st.integers(0, 5)), draw(st.integers(0, 3)) if base else 0
        args = [[draw(st.integers(NONE, base - 1)) for _ in range(n_slots)] for _ in range(n)]
        blocks.append(
            build_block(base, type_id, np.array(args, dtype=np.int32).reshape(n, n_slots))
        )
    return blocks


@given(drawn_blocks())
def test_joined_blocks_have_the_arguments_that_are_given(blocks: list[VertexBlock]) -> None:
    graph = join_blocks(blocks, ("unbatchable", *"abcd"))
    expected = [[a for a in row if a != NONE] for block in blocks for row in block.args.tolist()]
    assert [graph.select_args(v).tolist() for v in range(graph.n_vertices)] == expected
    assert graph.types.tolist() == [t for block in blocks for t in block.types.tolist()]


def test_a_parser_computes_the_vector_of_missing_tokens_once_per_mini_batch() -> None:
    model, instances = EXAMPLES["parser"]
    assert isinstance(model, Parser)
    assert len(instances) > 1
    graph = model.mini_batch(instances).graph
    assert graph.types.tolist().count(graph.type_names.index("missing")) == 1
