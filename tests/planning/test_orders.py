"""Orders of a head node: read on a node as they were written, or refused in one line."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import BenchError, ConfigError
from harness.planning.nodes import Nodes
from harness.planning.orders import (
    Order,
    check_code,
    code_of_this_machine,
    order_path,
    read_order,
)
from harness.planning.slurm import check_seen, script
from harness.trials.spec import TrialSpec

NODES = Nodes("small", n_cpus=2, memory_gib=2)


def test_what_is_written_is_read(make_spec: Callable[..., TrialSpec], tmp_path: Path) -> None:
    trials = ((make_spec(batch_size=1), make_spec(batch_size=2)), (make_spec(round=1),))
    for order in (
        Order(tmp_path, NODES, "code", trials=trials),
        Order(tmp_path, NODES, "code", count=("model=tree_lstm", "out=x"), shares_machine=True),
    ):
        order.write(order_path(tmp_path, "some"))
        assert read_order(order_path(tmp_path, "some")) == order


def test_an_order_that_a_node_does_not_see_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BenchError) as caught:
        read_order(order_path(tmp_path / "elsewhere", "some"))
    assert "results_dir has to be a folder that the head node and all nodes share" in str(
        caught.value
    )
    place = order_path(tmp_path, "cut_off")
    place.parent.mkdir()
    place.write_text('{"results_dir": "x"')
    with pytest.raises(BenchError, match="is no order"):
        read_order(place)


def test_other_code_is_refused() -> None:
    check_code(code_of_this_machine(), "bench1")
    with pytest.raises(ConfigError, match="bench1 runs another version of the code or of Python"):
        check_code("3.11.0-beef", "bench1")


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("no_folder\n", "bench2 does not see"),
        ("no_python\n", "make the environment"),
        ("code=3.9.0-beef\n", "bench2 runs another version of the code"),
        ("Traceback\nModuleNotFoundError: No module named 'numpy'\n", "No module named 'numpy'"),
        ("", "cannot run our code"),
    ],
)
def test_what_a_node_lacks_is_one_line_before_anything_is_measured(
    printed: str, words: str, tmp_path: Path
) -> None:
    ours = f"code={code_of_this_machine()}\n"
    check_seen({"bench1": ours}, tmp_path)
    with pytest.raises(ConfigError) as caught:
        check_seen({"bench1": ours, "bench2": printed}, tmp_path)
    assert words in str(caught.value)
    assert "bench2" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_look_says_what_is_there(tmp_path: Path) -> None:
    """The script itself, as a shell on a node runs it."""

    def looked(file: Path) -> str:
        done = subprocess.run(
            ["sh", "-c", script(file)], capture_output=True, text=True, check=True
        )
        return done.stdout

    file = tmp_path / "a folder's file"
    assert looked(file) == "no_folder\n"
    file.touch()
    assert looked(file) == f"code={code_of_this_machine()}\n"
