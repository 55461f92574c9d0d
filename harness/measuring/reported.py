"""Facts that a system reports about itself, validated at the time of the report."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from pydantic import ConfigDict, TypeAdapter, ValidationError

from dynbatch.harness.contracts.system import System


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
