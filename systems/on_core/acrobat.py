"""ACRoBat's strategy on the shared engine: programs, recorded with inline depths.

Fegade, Chen, Gibbons and Mowry, MLSys 2024. Values of earlier rounds stay in memory; a round begins
when the losses of the one before, and so all values that it waits for, are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.contracts.model import Model, Weights
from harness.errors import ConfigError
from harness.programs.model import recorded
from harness.programs.recorder import RecordingOptions
from systems.on_core import vertex
from systems.on_core.vertex import CoreOptions


@dataclass(frozen=True, slots=True)
class AcrobatOptions(CoreOptions):
    """The engine's switches, and how a program is recorded (harness.programs.recorder).

    recording: "program" runs the model's program for every instance; "auto" makes the same graph of
    arrays where the model can, as compiled code would, and nothing else is switched off.
    static_depths: blocks that no recurrent value reaches have a depth of their own, before all.

    Raises ConfigError as CoreOptions does.
    """

    policy: str = "inline_depth"
    recording: Literal["auto", "program"] = "auto"
    phases: bool = True
    ghosts: bool = True
    static_depths: bool = True
    restart_depths: bool = True

    @property
    def how(self) -> RecordingOptions:
        """What is counted."""
        return RecordingOptions(self.phases, self.ghosts, self.static_depths, self.restart_depths)


class Adapter(vertex.Adapter):
    """As every preset of the engine, but for how graphs are made."""

    option_type = AcrobatOptions
    options: AcrobatOptions

    def prepare(self, model: Model, weights: Weights) -> None:
        """As the engine; a program is recorded where that is asked for."""
        options = self.options
        from_program = options.recording == "program" or options.how != RecordingOptions()
        if from_program and not hasattr(model, "program"):
            raise ConfigError(
                f"model {model.name} has no program: its phases, ghosts and depths cannot be"
                " switched off; leave these options out, or choose a model that has one"
            )
        super().prepare(recorded(model, options.how) if from_program else model, weights)

    def in_force(self) -> dict[str, str]:
        """Also how graphs are made."""
        how, options = super().in_force(), self.options
        names = ("recording", "phases", "ghosts", "static_depths", "restart_depths")
        return how | {name: str(getattr(options, name)).lower() for name in names}
