"""Small models that are programs, and sentences for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynbatch.harness.contracts.model import Model, ModelSizes
from dynbatch.harness.models.berxit import Berxit
from dynbatch.harness.models.birnn import BiRNN
from dynbatch.harness.models.drnn import DRNN
from dynbatch.harness.models.mv_rnn import MVRNN
from dynbatch.harness.models.nested_rnn import NestedRNN
from dynbatch.harness.models.stack_rnn import StackRNN
from dynbatch.harness.models.tree_lstm import TreeLSTM
from dynbatch.harness.models.tree_lstm_2type import TreeLSTM2Type
from dynbatch.harness.models.tree_lstm_child_sum import TreeLSTMChildSum
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.values.instances import Chain
from tests.support.engine_models import TREES
from tests.support.instances import random_instances

SIZES = ModelSizes(4, {"words": 7, "classes": 3})
SENTENCES: list[Chain] = random_instances("chain", (1, 5, 2, 5, 3, 9), SIZES, seed=1)
TRAINED: list[ProgramModel] = [
    StackRNN(SIZES),
    NestedRNN(SIZES, fewest=2, most=4),
    DRNN(SIZES, p_child=0.9, generations=3),
]
BERXIT = Berxit(SIZES, layers=4, tokens=3, head_size=2, p_exit=0.4)
DECIDED = [*TRAINED, BERXIT]
WITH_ARRAYS: list[tuple[Model, Sequence[Any]]] = [
    (BiRNN(SIZES), SENTENCES),
    (TreeLSTM(SIZES), TREES),
    (TreeLSTM2Type(SIZES, type_seed=3), TREES),
    (TreeLSTMChildSum(SIZES), TREES),
    (MVRNN(SIZES), TREES),
]
