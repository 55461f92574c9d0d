"""A sweep over batch sizes measures the same instances at every size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.planning.same_instances import AT_LARGEST, shared_n_instances
from harness.terminal.command_line import parse, plan
from harness.trials.spec import Timing, TrialSpec
from harness.trials.workload import load_workload

MakeSpec = Callable[..., TrialSpec]
SIZES = (1, 2, 8)


@pytest.mark.parametrize("order", ["shuffled", "file", "length"])
def test_whatever_the_batch_size_the_same_instances_are_measured(
    make_spec: MakeSpec, order: str
) -> None:
    sentences = {
        **{"model": "var_lstm", "model_module": "harness.models.var_lstm", "model_options": {}},
        **{"dataset": "ptb_synthetic", "loader": "datasets.ptb_synthetic", "dataset_options": {}},
        **{"split": "dev", "order": order, "timing": Timing(n_instances=16)},
    }
    found = {}
    for size in SIZES:
        work = load_workload(make_spec(**sentences, batch_size=size))
        assert {len(mini_batch) for mini_batch in work.mini_batches} == {size}, "all are full"
        flat = [chain for mini_batch in work.mini_batches for chain in mini_batch]
        found[size] = sorted(tuple(chain.words) for chain in flat)
    assert len(found[1]) == 16
    assert found[1] == found[2] == found[8]


def test_what_leaves_a_mini_batch_that_is_not_full_is_refused(make_spec: MakeSpec) -> None:
    for n_instances in (9, 1):
        with pytest.raises(ConfigError, match=f"n_instances={n_instances} is no multiple of"):
            make_spec(batch_size=2, timing=Timing(n_instances=n_instances))


def test_trials_that_say_nothing_keep_their_names(make_spec: MakeSpec) -> None:
    spec = make_spec()
    assert not {"n_instances", "max_warmup", "max_warmup_s"} & set(spec.identity["timing"])
    other = [Timing(n_instances=4), Timing(max_warmup=3), Timing(max_warmup_s=9.0)]
    assert len({make_spec(timing=timing).trial_id for timing in other}) == 3


@pytest.mark.parametrize(
    ("sizes", "n"), [((16, 64), 256), ((1, 256), 1024), ((3, 4), 48), ((48, 64), 768)]
)
def test_a_sweep_fills_mini_batches_of_every_size(sizes: tuple[int, ...], n: int) -> None:
    assert shared_n_instances(sizes, n_mini_batches=16) == n
    assert all(n % size == 0 for size in sizes)
    assert n >= 16 * min(sizes)
    assert n >= AT_LARGEST * max(sizes)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["batch_size=2,8"], {2: (16, 32), 8: (4, 32)}),
        (["batch_size=2,8", "timing.n_mini_batches=3"], {2: (3, 0), 8: (3, 0)}),
        (["batch_size=2,8", "timing.n_instances=8"], {2: (4, 8), 8: (1, 8)}),
        (["batch_size=8", "hidden_size=2,3"], {8: (16, 0)}),
    ],
)
def test_bench_sweeps_over_the_same_instances(
    typed: list[str], found: dict[int, tuple[int, int]], tmp_path: Path
) -> None:
    words = ["-m", "system=null", "model=tree_fc", "dataset=complete_trees", *typed]
    specs = [one.spec for one in plan(parse([*words, f"results_dir={tmp_path}"]), words)]
    planned = {s.batch_size: (s.n_mini_batches, s.timing.n_instances) for s in specs}
    assert planned == found
