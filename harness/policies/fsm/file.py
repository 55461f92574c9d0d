"""Read a saved state machine, and refuse one that is for something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.machine.regular_files import read_regular
from harness.policies.fsm.machine import SCHEMA_VERSION, StateMachine


def load_machine(file: Path, encoding: str, workload: str) -> StateMachine:
    """Read a machine that `StateMachine.save` wrote.

    Raises ConfigError where the file cannot be read or holds no machine, and where the machine is
    of another schema version, encoding or workload.
    """
    values = _read(file)
    if values["schema_version"] != SCHEMA_VERSION:
        raise ConfigError(
            f"{file} has schema_version {values['schema_version']}, this version reads"
            f" {SCHEMA_VERSION}; learn the policy again"
        )
    for name, wanted in (("encoding", encoding), ("workload", workload)):
        if values.get(name) != wanted:
            raise ConfigError(
                f"{file} holds a policy with {name} {values.get(name)!r}, not {wanted!r}; learn one"
                " for it, or name another file"
            )
    try:
        return _machine(values)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{file} is not a saved policy: {type(error).__name__} {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{file} is not a saved policy: {error}") from None


def is_saved_policy(content: bytes) -> bool:
    """Whether the content of a file is a policy that was saved, of whatever workload."""
    try:
        values = json.loads(content)
    except ValueError:
        return False
    return isinstance(values, dict) and {"schema_version", "workload"} <= values.keys()


def _read(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(read_regular(file).decode())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from error
    if not isinstance(values, dict) or "schema_version" not in values:
        raise ConfigError(f"{file} is not a saved policy; save one with `bench-schedule`")
    return values


def _machine(values: dict[str, Any]) -> StateMachine:
    rest = {k: v for k, v in values.items() if k not in ("schema_version", "states")}
    return StateMachine(
        **rest
        | {
            "type_names": tuple(map(str, values["type_names"])),
            "follows": tuple(map(int, values["follows"])),
            "states": tuple(tuple(map(int, state)) for state, _ in values["states"]),
            "choices": tuple(int(choice) for _, choice in values["states"]),
        }
    )
