"""Numbers of a configuration: finite, of their own type, and no larger than what can be counted."""

from __future__ import annotations

from harness.errors import ConfigError

LARGEST_COUNT = 2**31 - 1  # of what is counted in 32 bits
LARGEST_SIZE = 2**20  # of a layer or a mini-batch: its square is still an array's number of bytes
LARGEST_SEED = 2**32 - 1  # that every framework takes
LARGEST_MEMORY_BYTES = 2**63 - 1
YEAR_S = 365 * 24 * 3600.0
LARGEST_RATE = 1e6  # no step of learning is longer


def check_count(name: str, value: object, lowest: int, highest: int = LARGEST_COUNT) -> None:
    """Raise ConfigError unless a value is a whole number within its bounds, both included."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{name}={value} is not allowed; give a whole number")
    _check_within(name, value, lowest, highest)


def check_number(name: str, value: object, lowest: float, highest: float) -> None:
    """Raise ConfigError unless a value is a finite number within its bounds, both included."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"{name}={value} is not allowed; give a number")
    _check_within(name, value, lowest, highest)


def _check_within(name: str, value: float, lowest: float, highest: float) -> None:
    """Refuse what is outside; so is NaN, which no comparison holds for."""
    if lowest <= value <= highest:
        return
    most = "" if value < lowest else f" and at most {highest}"
    raise ConfigError(f"{name}={value} is not allowed; give a value of at least {lowest}{most}")
