"""Has programs recorded by compiled code: for systems that are timed while they record.

Others record no mini-batch that is timed, and do without a compiler in their process.
"""

from __future__ import annotations

from harness.contracts.model import Model
from harness.programs.call_text import call_text
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
    if recording.quick is not None:
        return
    text = call_text(recording.shapes, recording.pulls)
    fitting = Fitting(recording.shapes.values(), len(recording.type_names), recording.pulls)

    def recorder(rules: Rules, n_instances: int) -> Recorder:
        return LoggedRecorder(rules, text, fitting, n_instances)

    recording.quick = recorder
