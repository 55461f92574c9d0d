"""Job specs: a node reads the written values, or refuses them in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynbatch.harness.errors import BenchError
from dynbatch.harness.planning.job_specs import Order, Step, build_order_path, read_order
from dynbatch.harness.planning.nodes import Nodes
from tests.support.measured import MakeSpec

NODES = Nodes("small", n_cpus=2, memory_gib=2)


def test_written_orders_are_read_back_unchanged(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(batch_size=2)
    name = spec.trial_id
    repetitions = ((Step(name, 0),), (Step(name, 1),))
    for order in (
        Order(tmp_path, NODES, "code", repetitions, {name: spec}),
        Order(tmp_path, NODES, "code", count=("model=tree_lstm", "out=x"), shares_machine=True),
        Order(tmp_path),
    ):
        order.write(build_order_path(tmp_path, "some"))
        assert read_order(build_order_path(tmp_path, "some")) == order


def test_an_order_that_a_node_does_not_see_is_one_line(tmp_path: Path) -> None:
    words = "set results_dir to a directory that the head node and all nodes share"
    with pytest.raises(BenchError, match=words):
        read_order(build_order_path(tmp_path / "elsewhere", "some"))
    place = build_order_path(tmp_path, "cut_off")
    place.parent.mkdir()
    place.write_text('{"results_dir": "x"')
    with pytest.raises(BenchError, match="is not a job spec"):
        read_order(place)
