"""Records near a round, and facts that a system reports about itself, which are validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from pydantic import ConfigDict, TypeAdapter, ValidationError

from dynbatch.harness.contracts.system import System
from dynbatch.harness.machine.facts import describe_machine
from dynbatch.harness.records.cross_check import find_other_fingerprints
from dynbatch.harness.records.fingerprint import Fingerprint
from dynbatch.harness.records.record import Record, build_record_path, find_record
from dynbatch.harness.trials.sources import hash_trial_source, read_harness_versions
from dynbatch.harness.trials.spec import TrialSpec


def query_system(system: System, method: str) -> Any:
    """Return the validated value of a method by which a system reports facts about itself.

    Raises:
        TypeError: The contract does not allow the value; the message names the method, the value
            and the allowed ones, which an error at the time of the record could not.
    """
    value = getattr(system, method)()
    kind, allowed = _REPORTED[method]
    try:
        return kind.validate_python(value.item() if isinstance(value, np.generic) else value)
    except ValidationError:
        shown = " ".join(repr(value).split())
        shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
        module = type(system).__module__
        line = f"{module}: {method}() returned {shown}: expected {allowed}"
        raise TypeError(line) from None


_MAX_SHOWN = 100  # characters of the returned value in messages
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
_TEXTS = TypeAdapter(dict[str, str], config=_STRICT), "a dict of strings by name"
_COUNT = (
    TypeAdapter(Annotated[int, Ge(0)] | None, config=_STRICT),
    "a whole number of at least 0, or None",
)
_SHARE = (
    TypeAdapter(Annotated[float, Ge(0), Le(1)] | None, config=_STRICT),
    "a number from 0 to 1, or None",
)
_REPORTED: dict[str, tuple[TypeAdapter[Any], str]] = {
    "versions": _TEXTS,
    "effective_options": _TEXTS,
    "n_compilations": _COUNT,
    "peak_memory_bytes": _COUNT,
    "data_movement_fraction": _SHARE,
}


class Surroundings:
    """Records in the directory of a round's: of its trial's first round, and of other systems.

    Args:
        record_path: Path of the round's record; outside of a results directory, there are none.
    """

    def __init__(self, record_path: Path, spec: TrialSpec) -> None:
        self._spec = spec
        raw = record_path.resolve().parent.parent
        is_inside = record_path == build_record_path(raw.parent, spec.trial_id, spec.round)
        self._raw = raw if is_inside else None

    def find_fingerprints(self, workload: str) -> Sequence[Fingerprint]:
        if self._raw is None:
            return ()
        return find_other_fingerprints(self._raw, self._spec.trial_id, workload)

    def find_proof(self, inputs_sha256: str | None) -> Record | None:
        """Return the record of the first round if it proves that this round is correct, or None.

        It does for the same code, inputs and machine if that round was checked. `is_same_software`
        compares the versions, which are known once the system is loaded.
        """
        if self._raw is None or self._spec.round == 0:
            return None
        first = find_record(build_record_path(self._raw.parent, self._spec.trial_id, 0))
        spec = self._spec.replace_round(0)
        if first is None or first.status != "ok" or first.fingerprint is None:
            return None
        is_same = (
            first.is_valid_for(spec, hash_trial_source(spec))
            and first.inputs_sha256 == inputs_sha256
            and _drop_clocks(first.machine) == _drop_clocks(describe_machine().to_dict())
        )
        return first if is_same else None


def _drop_clocks(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return a machine's facts without the clock rates of its GPUs at the moment."""
    gpus = [{**gpu, "sm_clock_mhz": None} for gpu in machine.get("gpus") or ()]
    return {**machine, "gpus": gpus}


def is_same_software(first: Record, system: System) -> bool:
    versions: dict[str, str] = query_system(system, "versions")
    return first.versions == read_harness_versions() | versions
