"""Folded tables: which matmuls become lookups; test_against_reference.py compares results."""

from __future__ import annotations

from dynbatch.harness.contracts.model import trace_functions
from dynbatch.harness.vertex.folding import FoldedTable, fold_tables
from tests.support.engine_models import EXAMPLES


def test_a_product_of_a_look_up_is_a_look_up() -> None:
    function = trace_functions(EXAMPLES["lattice_lstm"][0])["char"]
    folded, tables = fold_tables(function)
    assert tables == (FoldedTable("characters", "W_char"),)
    products = [node for node in folded.nodes if node.op == "matmul"]
    assert [folded.nodes[node.inputs[1]].name for node in products] == ["U_char"]


def test_function_without_table_lookup_is_not_folded() -> None:
    function = trace_functions(EXAMPLES["lattice_lstm"][0])["join"]
    assert fold_tables(function) == (function, ())
