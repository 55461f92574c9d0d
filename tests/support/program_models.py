"""Small models that are programs, and sentences for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynbatch.harness.contracts.model import Model, ModelSizes
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.values.instances import Chain
from tests.support.engine_models import TREES
from tests.support.instances import build, random_instances

SIZES = ModelSizes(4, {"words": 7, "classes": 3})
SENTENCES: list[Chain] = random_instances("chain", (1, 5, 2, 5, 3, 9), SIZES, seed=1)
TRAINED: list[ProgramModel] = [
    build("stack_rnn", SIZES),
    build("nested_rnn", SIZES, fewest=2, most=4),
    build("drnn", SIZES, p_child=0.9, generations=3),
]
BERXIT = build("berxit", SIZES, layers=4, tokens=3, head_size=2, p_exit=0.4)
DECIDED = [*TRAINED, BERXIT]
WITH_ARRAYS: list[tuple[Model, Sequence[Any]]] = [
    (build("birnn", SIZES), SENTENCES),
    (build("tree_lstm", SIZES), TREES),
    (build("tree_lstm_2type", SIZES, type_seed=3), TREES),
    (build("tree_lstm_child_sum", SIZES), TREES),
    (build("mv_rnn", SIZES), TREES),
]
