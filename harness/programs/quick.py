"""Has programs recorded by compiled code: for systems that are timed while they record.

A program that waits is translated where that is possible (harness.programs.compiling); else Python
runs it, and each call adds to a log that compiled code decodes. Other systems record no mini-batch
that is timed, and do without a compiler in their process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.contracts.model import Model
from harness.programs.call_text import call_text
from harness.programs.compiling.programs import CompiledPrograms
from harness.programs.compiling.translation import Translator
from harness.programs.compiling.values import NotTranslated
from harness.programs.decisions import Drawn
from harness.programs.decode import FAULT
from harness.programs.decoder import Decoder
from harness.programs.logged import LoggedRecorder, check_fault
from harness.programs.recorder import Recorder, RecordingOptions, Rules
from harness.programs.recording import FAULTS, Recorded, Recording, Widens
from harness.programs.verify import Fitting

BY_COMPILED_CODE = "compiled code"


def record_quickly(model: Model) -> None:
    """From now on, the programs of a model, where it has any; what is recorded stays the same."""
    recording = getattr(model, "recording", None)
    if isinstance(recording, Recording):
        quicken(recording)


def quicken(recording: Recording, *, translate: bool | None = None) -> None:
    """The same for a recording. translate: whether its program may be, too; as before if None."""
    known = recording.quick
    if isinstance(known, QuickRecorders) and translate in (None, known.translates):
        return
    recording.quick = QuickRecorders(recording, translate=translate is not False)


def programs_run_by(model: Model) -> dict[str, str]:
    """What runs a model's programs, as a fact for records; nothing where it has none."""
    recording = getattr(model, "recording", None)
    if not isinstance(recording, Recording) or not isinstance(recording.quick, QuickRecorders):
        return {}
    return {"programs run by": recording.quick.run_by}


class QuickRecorders:
    """Makes recorders for the mini-batches of a recording.

    translates: whether its program may be translated.
    """

    def __init__(self, recording: Recording, *, translate: bool = True) -> None:
        self._text = call_text(recording.shapes, recording.pulls)
        n_types = len(recording.type_names)
        self._fitting = Fitting(recording.shapes.values(), n_types, recording.pulls)
        self._program, self.translates = recording.program, translate
        self._why_python = "" if translate else "it was asked to"
        self._programs: CompiledPrograms | None = None

    @property
    def programs(self) -> CompiledPrograms | None:
        """The translated ones, None where Python runs them."""
        if self._programs is None and not self._why_python:
            try:
                self._programs = self._translated()
            except NotTranslated as reason:
                self._why_python = str(reason)
            except Exception as error:  # Python can run whatever a translation stumbles over
                name = type(error).__name__
                self._why_python = f"its translation met {name}, a fault of ours: {error}"
        return self._programs

    def _translated(self) -> CompiledPrograms:
        model = getattr(self._program, "__self__", None)
        translation = Translator(model, self._text).translate(self._program)
        return CompiledPrograms(translation, model)

    @property
    def run_by(self) -> str:
        """What runs them, and why."""
        if self.programs is not None:
            return BY_COMPILED_CODE
        return f"Python, since {self._why_python}"

    def give_up(self, fault: Exception) -> None:
        """Python could run what compiled code could not; it does from now on, and that is told."""
        if self._programs is not None:
            self._programs = None
            self._why_python = f"compiled code met {type(fault).__name__}: {fault}"

    def __call__(self, rules: Rules, n_instances: int) -> Recorder:
        """One that has its own memory."""
        return LoggedRecorder(rules, self._text, self._fitting, n_instances)

    def again(self, rules: Rules, n_instances: int, decoder: Decoder | None) -> LoggedRecorder:
        """One that writes over what another one's decoder holds."""
        return LoggedRecorder(rules, self._text, self._fitting, n_instances, decoder)

    def decoder(self, rules: Rules, n_instances: int, decoder: Decoder | None) -> Decoder:
        """The same for what translated programs record."""
        if decoder is None:
            return Decoder(rules, self._text, self._fitting, n_instances)
        decoder.begin(rules, n_instances)
        return decoder

    def can_record(self) -> bool:
        """Whether translated programs record all rounds before the first one runs."""
        return self.programs is not None and not self.programs.asks

    def recorded(
        self,
        rules: Rules,
        instances: Sequence[Any],
        drawn: Sequence[Drawn],
        options: RecordingOptions,
        widens: Widens,
    ) -> Recorded | None:
        """What translated programs call; None where it has to be recorded by other rules.

        Raises ProgramError, or another fault of programs, for what Python has to run.
        """
        programs = self._programs
        assert programs is not None
        decoder = self.decoder(rules, len(instances), None)
        programs.begin(instances, drawn, options)
        programs.go_on()
        decoder.take(programs.log)
        try:
            check_fault(int(decoder.state[FAULT]))
        except FAULTS:
            if not widens(decoder.feeds):
                raise
            return None
        if widens(decoder.feeds):
            return None
        return Recorded(decoder.cut(), programs.outputs(), programs.n_rounds)
