"""Programs in DyNet break their rounds where the paper's do: at every value that decides."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from harness.models.berxit import Berxit
from harness.models.drnn import DRNN
from harness.values.places import ROOT
from systems.on_dynet.autobatch import DynetOptions, _why_no_dynet
from systems.plans.programs import grown_tree
from tests.support.dynet_waits import MODELS, SENTENCES

PROGRAM = ROOT / "tests" / "support" / "dynet_waits.py"
REASON = _why_no_dynet(DynetOptions())


@pytest.fixture(scope="module")
def n_waits() -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.dynet
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_a_wait_for_each_round_of_the_graph(n_waits: dict[str, int]) -> None:
    """A last wait of DRNN's finds that nothing grows any more, and records nothing."""
    for name in ("birnn", "stack_rnn", "nested_rnn"):
        assert n_waits[name] == n_rounds(name) - 1, name
    assert n_waits["drnn together"] == n_rounds("drnn")
    model = MODELS["berxit"]
    assert isinstance(model, Berxit)
    longest = max(model.n_layers(sentence) for sentence in SENTENCES)
    assert n_waits["berxit"] == min(longest, model.layers - 1) > 1, "nobody waits at the last layer"


@pytest.mark.dynet
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_a_recursion_waits_for_each_node_of_the_largest_tree(n_waits: dict[str, int]) -> None:
    model = MODELS["drnn"]
    assert isinstance(model, DRNN)
    most = max(len(grown_tree(model, sentence).nodes) for sentence in SENTENCES)
    assert n_waits["drnn"] == most > n_waits["drnn together"]


def n_rounds(name: str) -> int:
    rounds = MODELS[name].mini_batch(SENTENCES).graph.rounds
    return 1 if rounds is None else int(rounds.max()) + 1
