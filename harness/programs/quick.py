"""Has programs recorded by compiled code: for systems that are timed while they record.

Others record no mini-batch that is timed, and do without a compiler in their process.
"""

from __future__ import annotations

from harness.contracts.model import Model
from harness.programs.call_text import call_text
from harness.programs.decoder import Decoder
from harness.programs.logged import LoggedRecorder
from harness.programs.recorder import Recorder, Rules
from harness.programs.recording import Recording
from harness.programs.verify import Fitting


def record_quickly(model: Model) -> None:
    """From now on, the programs of a model, where it has any; what is recorded stays the same."""
    recording = getattr(model, "recording", None)
    if isinstance(recording, Recording):
        quicken(recording)


def quicken(recording: Recording) -> None:
    """The same for a recording."""
    if recording.quick is None:
        recording.quick = QuickRecorders(recording)


class QuickRecorders:
    """Makes recorders for the mini-batches of a recording."""

    def __init__(self, recording: Recording) -> None:
        self._text = call_text(recording.shapes, recording.pulls)
        n_types = len(recording.type_names)
        self._fitting = Fitting(recording.shapes.values(), n_types, recording.pulls)

    def __call__(self, rules: Rules, n_instances: int) -> Recorder:
        """One that has its own memory."""
        return LoggedRecorder(rules, self._text, self._fitting, n_instances)

    def again(self, rules: Rules, n_instances: int, decoder: Decoder | None) -> LoggedRecorder:
        """One that writes over what another one's decoder holds."""
        return LoggedRecorder(rules, self._text, self._fitting, n_instances, decoder)
