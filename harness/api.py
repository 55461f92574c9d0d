"""Python interface: sweeps and selections (docs/notebook.md).

Example:
    >>> import dynbatch
    >>> rows = dynbatch.measure(system=["vertex", "dynet"], batch_size=[16, 64], rounds=3)
    >>> dynbatch.numbers(rows)
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dynbatch.harness.errors import ConfigError, suggest_name
from dynbatch.harness.measuring.processes.fork_server import ForkServers
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.planning.nodes import check_machine
from dynbatch.harness.planning.overrides import format_override
from dynbatch.harness.records.cross_check import cross_check_records
from dynbatch.harness.records.numbers import check_columns
from dynbatch.harness.records.record import Record
from dynbatch.harness.records.tidy import build_frame
from dynbatch.harness.terminal.command_line import describe_plan, parse, plan
from dynbatch.harness.terminal.exit_handling import print_message, raise_on_signals
from dynbatch.harness.terminal.measurement import lock_results, measure_each
from dynbatch.harness.values.nested import flatten
from dynbatch.harness.values.paths import CONF_DIR

SYSTEM_KIND = "system_kind"


def measure(
    settings: Mapping[str, Any] | None = None,
    *,
    rounds: int | None = None,
    results_dir: str | Path = "results",
    quiet: bool = False,
    **keys: Any,
) -> pd.DataFrame:
    """Measure a sweep as `bench` does, and return the frame of exactly its trials.

    Trials that have a valid record are not measured again. If you interrupt a sweep, completed
    records are saved, and the same call resumes it.

    Args:
        settings, keys: keys of `bench` (`bench --help`); a list is a sweep over its values. In
            keyword names `__` means a dot: `timing__n_mini_batches=2`.
        rounds: repetitions of each trial; None: the experiment's number, or 1.

    Raises:
        ConfigError: for an unknown key or value, and, after all others were measured, if a trial
            cannot be measured on this machine.
        OutputError: if a record cannot be written.
    """
    chosen = {**(settings or {}), **{key.replace("__", "."): value for key, value in keys.items()}}
    chosen |= {"results_dir": str(results_dir)} | ({} if rounds is None else {"rounds": rounds})
    typed = build_overrides(chosen)
    with ExitStack() as stack:
        if quiet:
            stack.enter_context(redirect_stdout(StringIO()))
            stack.enter_context(redirect_stderr(StringIO()))
        try:
            return build_frame(_measure_typed(typed))
        except ConfigError as error:  # Hydra's own errors are long; the message is sufficient.
            raise ConfigError(str(error)) from None


def _measure_typed(typed: Sequence[str]) -> list[Record]:
    """Measure the trials of a `bench` command line, and return their cross-checked records."""
    jobs = parse(typed)
    if any(job.config.cpu is not None for job in jobs):
        raise ConfigError(
            "cpu would restrict the whole program: start Python with taskset, or use bench;"
            " remove cpu"
        )
    planned = plan(jobs, typed)
    for trial in planned:
        check_machine(trial.spec)
    for line in describe_plan(jobs, planned):
        print_message(line)
    lock = lock_results(planned, shlex.join(["bench", *typed]))
    with raise_on_signals(), lock, ForkServers() as servers:
        run = measure_each(planned, servers)
    if run.refusals:
        raise ConfigError(str(run.refusals[0]))
    return cross_check_records(run.records)


def build_overrides(settings: Mapping[str, Any]) -> list[str]:
    """Convert settings to the arguments of `bench`; several values of a key make a sweep.

    Raises:
        ConfigError: for an empty list, and for a value of a type that no key of `bench` accepts.
    """
    overrides, is_sweep = [], False
    for key, value in flatten(settings):
        values = list(value) if _is_list(value) else [value]
        if not values:
            raise ConfigError(f"{key}=[] has no values; add one, or remove {key}")
        is_sweep = is_sweep or len(values) > 1
        overrides.append(f"{key}={','.join(_format_value(key, each) for each in values)}")
    return ["-m", *overrides] if is_sweep else overrides


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple | set | range | np.ndarray | pd.Series | pd.Index)


def _format_value(key: str, value: object) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, bool | int | float | str | Path):
        raise ConfigError(
            f"{key}={value!r}: expected a number, a string, true, false or None, or a list of those"
        )
    return format_override(key, value).partition("=")[2]


def select(rows: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """Select the rows that have these settings.

    Args:
        wanted: required value of each column, or a list of values; None: the value is missing. `__`
            means a dot in a name. `system_kind` selects systems by their kind in conf/system:
            "framework" selects the baselines, "upper_bound" the matmul bound.

    Raises:
        RecordError: for an unknown column.
        ConfigError: if no row has a value; the message names a close one.
    """
    for name, value in wanted.items():
        key = name.replace("__", ".")
        if key == SYSTEM_KIND:
            kinds = {system.name: system.kind for system in read_systems(CONF_DIR)}
            column = rows.system.map(kinds)
        else:
            check_columns(rows, [key])
            column = rows[key]
        values = list(value) if _is_list(value) else [value]
        for each in values:
            _check_value(key, each, column)
        matches = column.isin([each for each in values if each is not None])
        rows = rows[matches | column.isna() if None in values else matches]
    return rows


def _check_value(key: str, value: Any, column: pd.Series) -> None:
    """Raise ConfigError if a column of the rows selected so far does not contain a value."""
    if column.isna().any() if value is None else column.eq(value).any():
        return
    known = [str(each) for each in column.dropna().unique()]
    raise ConfigError(
        f"no row has {key}={value!r}{suggest_name(str(value), known)}; choose from"
        f" {', '.join(known) or 'nothing: no row is left'}"
    )
