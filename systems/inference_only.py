"""Models with control flow run in inference only, in every framework: as they were published."""

from __future__ import annotations

from harness.contracts.model import Model
from harness.programs.model import ProgramModel


def why_not_trained(model: Model, mode: str) -> str | None:
    """Say that a framework does not train a model, or None.

    ACRoBat (Fegade et al., MLSys 2024) compares inference only: what a round of training would be,
    where decisions end it, no text says.
    """
    if mode == "infer" or not isinstance(model, ProgramModel):
        return None
    return (
        f"model {model.name} is a program with control flow, of which frameworks run inference"
        f" only, not mode={mode}; give mode=infer"
    )
