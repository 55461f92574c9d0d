"""Base of models that are defined by a program; see docs/programs.md."""

from __future__ import annotations

import copy
import functools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

from dynbatch.harness.contracts.model import Model, ModelSizes, trace_functions
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.programs.blocks import RecordingOptions
from dynbatch.harness.programs.decisions import compute_checksum
from dynbatch.harness.programs.recording import KeptNumbers, Recording
from dynbatch.harness.programs.writer import CallWriter
from dynbatch.harness.values.checked import LARGEST_SEED, check_count
from dynbatch.harness.values.graph import MiniBatch

M = TypeVar("M", bound=Model)


class ProgramModel(Model):
    """Model whose graph is recorded from the block calls of `program`.

    The methods named in `vertex_types` are blocks; `program` calls them for one instance.

    Attributes:
        copies: names of the sets of weights of blocks that are called with several. Each set makes
            a separate block NAME_SET; the method gets the set's name after the tracer.
    """

    copies: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def __init__(self, sizes: ModelSizes, seed: int = 0, **options: Any) -> None:
        check_count("model.options.seed", seed, 0, LARGEST_SEED)
        super().__init__(sizes, seed=seed, **options)
        self.seed = seed
        self.kept: KeptNumbers = {}  # shared by all of its recordings
        types = []
        for name in type(self).vertex_types:
            for weights in self.copies.get(name, ()):
                setattr(self, f"{name}_{weights}", partial(_call_with_weights, self, name, weights))
            types += [f"{name}_{weights}" for weights in self.copies.get(name, ())] or [name]
        self.vertex_types = tuple(types)

    @abstractmethod
    def program(self, p: CallWriter, instance: Any) -> Any:
        """Call the blocks that one instance needs; return the output vertex, or a list of them.

        A program that waits for anything is a generator.
        """

    def key_of(self, instance: Any) -> int:
        """Return the number of an instance that determines its decisions."""
        return compute_checksum(instance.words)

    @functools.cached_property
    def recording(self) -> Recording:
        """Recording of its programs."""
        return make_recording(self, RecordingOptions())

    def mini_batch(self, instances: Sequence[Any]) -> MiniBatch:
        """Run the programs of all instances, and record them.

        If no value decides the program's course, a model may override this and build the graph from
        arrays.
        """
        return self.recording.mini_batch(instances)


def translate_programs(model: Model) -> None:
    """Allow compiled code to run a model's programs, if it has any; recordings stay the same.

    For systems that are timed while they record.
    """
    recording = getattr(model, "recording", None)
    if isinstance(recording, Recording):
        recording.translate()


def describe_program_execution(model: Model) -> dict[str, str]:
    """Return the execution of a model's programs, as a fact for records; empty without programs."""
    recording = getattr(model, "recording", None)
    return recording.facts() if isinstance(recording, Recording) else {}


def uses_arrays(model: Model) -> bool:
    """Return True if mini-batches are built from arrays, without running programs."""
    return getattr(type(model), "mini_batch", None) is not ProgramModel.mini_batch


def make_recording(model: Model, options: RecordingOptions) -> Recording:
    """Return a recording of the programs of any model that has a program.

    Raises:
        ConfigError: for a model without a program.
    """
    program = getattr(model, "program", None)
    if program is None:
        raise ConfigError(f"model {model.name} has no program; choose a model with one")
    functions, seed = trace_functions(model), getattr(model, "seed", 0)
    key = getattr(model, "key_of", _make_constant_key)
    kept: KeptNumbers = getattr(model, "kept", {})
    return Recording(functions, model.vertex_types, program, key, seed, options, kept)


def make_recorded_model(model: M, options: RecordingOptions) -> M:
    """Return a copy of a model whose mini-batches are recorded from its program.

    Raises:
        ConfigError: for a model without a program.
    """
    other, recording = copy.copy(model), make_recording(model, options)
    other.__dict__ |= {"recording": recording, "mini_batch": recording.mini_batch}
    return other


def _make_constant_key(_: Any) -> int:
    """Return a constant key for instances of programs without decisions."""
    return 0


def _call_with_weights(model: ProgramModel, name: str, weights: str, v: Any) -> None:
    getattr(model, name)(v, weights)
