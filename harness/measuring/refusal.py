"""How a worker tells its parent why it will not go on: in a file of their own.

An exit code alone is not believed, since whatever runs in the worker may end it with any.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NoReturn

from harness.errors import BenchError, DataError, OutputError
from harness.trials.spec import DATA_EXIT, OUTPUT_EXIT, USAGE_EXIT

_EXIT_CODES = {"config": USAGE_EXIT, "data": DATA_EXIT, "place": OUTPUT_EXIT}


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is wrong, in one line: the configuration, the data, or the place of the record."""

    of: Literal["config", "data", "place"]
    line: str

    @property
    def exit_code(self) -> int:
        """The worker's."""
        return _EXIT_CODES[self.of]

    def throw(self) -> NoReturn:
        """Raise as an error of the parent: BenchError, DataError or OutputError."""
        kinds = {"config": BenchError, "data": DataError, "place": OutputError}
        raise kinds[self.of](self.line)


def refuse(spec_path: Path, error: BenchError) -> int:
    """Tell the parent, and whoever reads the log; returns the exit code."""
    refusal = refusal_of(error)
    print(refusal.line, file=sys.stderr)
    write_refusal(spec_path, refusal)
    return refusal.exit_code


def refusal_of(error: BenchError) -> Refusal:
    """What an error says, in one line."""
    if isinstance(error, OutputError):
        return Refusal("place", one_line(error))
    return Refusal("data" if isinstance(error, DataError) else "config", one_line(error))


def one_line(error: BaseException) -> str:
    """An error's message in one line."""
    return " ".join(str(error).split())


def write_refusal(spec_path: Path, refusal: Refusal) -> None:
    """Leave it where the parent looks: beside the spec; cut off by a full disk, which it tells."""
    with suppress(OSError):
        _beside(spec_path).write_text(json.dumps(asdict(refusal)), encoding="utf-8")


def read_refusal(spec_path: Path, exit_code: int | None) -> Refusal | None:
    """What a worker left that ended with this exit code; None where it refused nothing.

    Raises OutputError where it could not write down what it refused.
    """
    path = _beside(spec_path)
    if exit_code not in _EXIT_CODES.values() or not path.exists():
        return None
    try:
        refusal = Refusal(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise OutputError(
            f"the worker's refusal in {path.parent} is cut off: make room there, or name another"
            " folder with TMPDIR, and the same command goes on"
        ) from error
    return refusal if refusal.exit_code == exit_code else None


def _beside(spec_path: Path) -> Path:
    return spec_path.with_name("refusal.json")
