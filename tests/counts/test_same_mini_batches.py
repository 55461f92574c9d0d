"""Counts are of the mini-batches that `bench order=file` measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynbatch.harness.contracts.corpus import draw_mini_batches
from dynbatch.harness.counts.request import GraphSource, Request, parse_request
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.trials.workload import load_workload

TREES = "".join(f"(1 (0 w{i}) (2 {'(1 (0 a) (1 b))' * (i % 2) or '(1 c)'}))\n" for i in range(5))


def parse(folder: Path, *settings: str) -> Request:
    file = folder / "five.txt"
    file.write_text(TREES)
    chosen = ["dataset=trees", f"dataset.path={file}", "batch_size=2", "policy=depth", *settings]
    return parse_request([*chosen, "outputs=stage"])


@pytest.mark.parametrize("last", ["keep", "drop"])
@pytest.mark.parametrize(("batch_size", "n"), [(2, 2), (2, 3), (2, 7), (3, 2), (5, 1), (5, 3)])
def test_counts_are_of_the_mini_batches_that_are_measured(
    last: str, batch_size: int, n: int, tmp_path: Path
) -> None:
    settings = (f"batch_size={batch_size}", f"timing.last={last}")
    request = parse(tmp_path, *settings, f"n_following={n - 1}", "order=file")
    source = GraphSource(request)
    graphs = [source.build_at(0), *source.build_following()]
    measured = draw_mini_batches(source.corpus, batch_size, n, 0, "file", last=last)
    assert [pair.plain.types.tolist() for pair in graphs] == [
        source.model.mini_batch(instances).graph.types.tolist() for instances in measured
    ]


def test_a_file_smaller_than_a_mini_batch_is_counted_as_it_is_measured(tmp_path: Path) -> None:
    request = parse(tmp_path, "batch_size=8", "timing.last=keep", "order=file")
    assert request.title.startswith("tree_lstm, trees train, instances 0 to at most 7, ")
    settings = {"dataset": "trees", "dataset.path": str(tmp_path / "five.txt"), "order": "file"}
    spec = Composer().resolve_trial({**settings, "batch_size": 8, "timing.last": "keep"})
    workload = load_workload(spec)
    (instances,) = workload.mini_batches
    graph = GraphSource(request).build_at(0).plain
    assert graph.n_vertices == workload.model.mini_batch(instances).graph.n_vertices
    with pytest.raises(ConfigError, match="offset=0 and batch_size=8 need 8 instances"):
        GraphSource(parse(tmp_path, "batch_size=8")).build_at(0)


def test_an_offset_behind_the_end_is_refused(tmp_path: Path) -> None:
    request = parse(tmp_path, "timing.last=keep", "offset=5")
    with pytest.raises(ConfigError, match=r"offset=5 needs 6 instances, but five\.txt .* has 5"):
        GraphSource(request).build_at(5)


def test_another_order_than_that_of_the_file_is_refused(tmp_path: Path) -> None:
    assert parse(tmp_path, "order=file").spec == parse(tmp_path).spec
    with pytest.raises(ConfigError, match="order=length is not allowed: expected file"):
        parse(tmp_path, "order=length")
