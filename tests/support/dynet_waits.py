"""Run as a program: how often programs in DyNet wait for values, for one mini-batch, as JSON.

By model: the parts that its program hands over which are no round of losses. DRNN, too, where its
tree grows breadth first.
"""

from __future__ import annotations

import json
from typing import Any

from harness.contracts.model import ModelSizes, initial_weights
from harness.contracts.system import RunSettings
from harness.measuring.clock import NullClock
from harness.models.berxit import Berxit
from harness.models.birnn import BiRNN
from harness.models.drnn import DRNN
from harness.models.nested_rnn import NestedRNN
from harness.models.stack_rnn import StackRNN
from harness.programs.model import ProgramModel
from harness.values.instances import Chain
from systems.on_dynet.autobatch import Adapter
from systems.on_dynet.rounds import Needed
from tests.support.sentences import random_sentences

SIZES = ModelSizes(4, {"words": 30, "classes": 3})
MODELS: dict[str, ProgramModel] = {
    "birnn": BiRNN(SIZES),
    "stack_rnn": StackRNN(SIZES),
    "nested_rnn": NestedRNN(SIZES, fewest=1, most=4),
    "berxit": Berxit(SIZES, layers=4, tokens=3, p_exit=0.3),
    "drnn": DRNN(SIZES, p_child=0.8, generations=4),
}
SENTENCES: list[Chain] = random_sentences("chain", (1, 5, 3, 6), SIZES, seed=3)


def n_waits(model: ProgramModel, **options: str) -> int:
    system = Adapter(RunSettings("infer", "cpu", 1, len(SENTENCES), 0.1, 0, options=options))
    system.prepare(model, initial_weights(model, 0))
    system.load(SENTENCES)
    build, parts = system._network.build, []

    def noted(instances: Any) -> Any:
        for part in build(instances):
            parts.append(part)
            yield part

    system._network.build = noted
    system.run(NullClock())
    return sum(isinstance(part, Needed) for part in parts)


if __name__ == "__main__":
    found = {name: n_waits(model) for name, model in MODELS.items()}
    found["drnn together"] = n_waits(MODELS["drnn"], branches="together")
    print(json.dumps(found))
