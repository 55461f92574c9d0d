"""How the pipeline says that its input is wrong: one line and exit code 1, as all commands do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.errors import BenchError


@contextmanager
def ends_in_one_line() -> Iterator[None]:
    """End the process with the line of a BenchError; Snakemake would print where it was raised."""
    try:
        yield
    except BenchError as error:
        raise SystemExit(f"snakemake: {' '.join(str(error).split())}") from None
