"""Programs with control flow: frameworks refuse to train them, in one line that says what to do."""

from __future__ import annotations

from types import ModuleType

import pytest

from harness.contracts.model import Model, ModelSizes
from harness.contracts.system import RunSettings, System
from harness.models.bilstm import BiLSTM
from harness.models.birnn import BiRNN
from harness.models.stack_rnn import StackRNN
from systems.on_dynet import autobatch
from systems.on_torch import compiled, eager, fused, levels

SIZES = ModelSizes(4, {"words": 7, "classes": 3})
PROGRAMS: list[Model] = [BiRNN(SIZES), StackRNN(SIZES)]


def skip(adapter: type[System], model: Model, mode: str) -> str | None:
    return adapter.skip(model, RunSettings(mode, "cpu", 1, 2, 0.1, 0))


@pytest.mark.parametrize("model", PROGRAMS, ids=lambda model: model.name)
@pytest.mark.parametrize("module", [autobatch, eager, levels])
def test_training_is_refused(
    module: ModuleType, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autobatch, "_why_no_dynet", lambda _: None)
    reason = skip(module.Adapter, model, "train")
    assert reason is not None
    assert "mode=train" in reason
    assert "give mode=infer" in reason
    assert "\n" not in reason
    assert skip(module.Adapter, model, "infer") is None


@pytest.mark.parametrize("module", [fused, compiled])
def test_systems_of_lstms_take_no_programs(module: ModuleType) -> None:
    """They read chains, too, but have no LSTM."""
    for model in PROGRAMS:
        reason = skip(module.Adapter, model, "infer")
        assert reason is not None
        assert "LSTM" in reason


def test_other_models_are_trained() -> None:
    assert skip(eager.Adapter, BiLSTM(SIZES), "train") is None
