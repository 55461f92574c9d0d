"""Output of `bench`: one line per trial, a summary of a single trial, and a progress bar."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dynbatch.harness.contracts.options import format_value
from dynbatch.harness.records.record import Record, Trial, build_trial
from dynbatch.harness.records.turns import collect_turn_seconds, compute_half_width
from dynbatch.harness.terminal.exit_handling import print_message
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.nested import flatten
from dynbatch.harness.values.paths import shorten_paths


def format_trial(trial: Trial) -> str:
    system = f"{trial.system}:{trial.policy}" if trial.policy else trial.system
    sizes = f"bs={trial.batch_size} h={trial.hidden_size}"
    device = f"{trial.device}/{trial.threads}"
    work = f"{trial.model} {trial.dataset} {sizes} {trial.mode} {device}"
    return f"{system} {work} r{trial.round}"


def format_outcome(record: Record) -> str:
    """Return throughput, status and warnings, or the reason for a missing number.

    The throughput has half of its 95% interval within this round.
    """
    if record.status != "ok" or record.instances_per_s is None or not record.n_mini_batches:
        return f"{record.status}: {record.reason}" if record.reason else record.status
    seconds = collect_turn_seconds(record.passes_s, record.turns)
    half_width = compute_half_width(seconds)
    spread = "" if half_width is None else f" ±{half_width:.1%}"
    warnings = f" ({', '.join(record.warnings)})" if record.warnings else ""
    return f"{format_speed(record.instances_per_s)} instances/s{spread}  ok{warnings}"


def format_speed(instances_per_s: float) -> str:
    """Format instances per second as a whole number, or small ones with two digits."""
    return f"{instances_per_s:,.0f}" if instances_per_s >= 10 else f"{instances_per_s:.2g}"


def format_summary(record: Record, path: Path) -> str:
    lines = [format_trial(record.trial), format_outcome(record)]
    if record.status == "ok" and record.n_mini_batches:
        times = [f"{name} {s * 1e3:.3g} ms" for name, s in record.phases_s.items() if s is not None]
        mini_batch_s = float(np.median(record.passes_s)) / record.n_mini_batches
        lines += [
            f"{len(record.passes_s)} passes over {record.n_mini_batches} mini-batches",
            f"a mini-batch: {mini_batch_s * 1e3:.3g} ms",
            f"phases, in passes of their own: {', '.join(times) or 'no separate phases'}",
            _describe_work(record),
        ]
    if record.effective_options:
        lines += filter(None, (_describe_options(record), _describe_compilation(record)))
    if record.check is not None:
        error = record.check.max_rel_err
        detail = "" if error is None else f" (largest relative error {error:.1e})"
        lines.append(f"check {record.check.status}{detail}")
    return "\n  ".join([*lines, f"record: {path}"])


SHOWN_OPTIONS = (
    *("backend", "blas", "calls", "threads"),
    *("execution", "deferred_reason", "program_execution"),
)


def _describe_options(record: Record) -> str:
    """Return effective options that no switch sets, and those that differ from the request."""
    asked = record.config.get("system_options", {})
    names = [name for name in SHOWN_OPTIONS if name in record.effective_options]
    way = [f"{name} {record.effective_options[name]}" for name in names]
    lost = [
        f"{name}={value} instead of {format_value(asked[name])}"
        for name, value in record.effective_options.items()
        if name in asked and name not in names
        if format_value(asked[name]) not in (value, "auto")
    ]
    return ", ".join(["ran with " + ", ".join(way), *lost] if way else lost)


def _describe_compilation(record: Record) -> str:
    """Return the number of compiled programs and their compile time; empty if there are none."""
    if not record.n_compilations or record.compile_s is None:
        return ""
    programs = "1 program" if record.n_compilations == 1 else f"{record.n_compilations} programs"
    return f"compiled {programs}, ready after {record.compile_s:.1f} s"


def _describe_work(record: Record) -> str:
    parts = []
    if record.n_batches is not None:
        parts.append(f"{record.n_batches:.4g} batches")
    if record.n_launches is not None:
        parts.append(f"{record.n_launches:.4g} launches")
    if record.bytes_copied is not None:
        parts.append(f"{record.bytes_copied / 2**20:.3g} MiB copied")
    if record.peak_memory_bytes is not None:
        parts.append(f"peak memory {record.peak_memory_bytes / 2**20:.0f} MiB")
        if record.baseline_memory_bytes is not None:
            parts[-1] += f" ({record.baseline_memory_bytes / 2**20:.0f} MiB before setup)"
    return ", ".join(parts)


def format_totals(statuses: Sequence[str], n_kept: int, n_refused: int) -> str:
    counts = ", ".join(f"{n} {status}" for status, n in Counter(statuses).most_common())
    refused = f"; {n_refused} refused" if n_refused else ""
    return f"{len(statuses)} records: {counts or 'none'}; {n_kept} reused{refused}"


class Reporter:
    """Log lines on standard error, with a progress bar below them on a terminal.

    The bar has no refresh thread: it is drawn between trials, never while one is timed. Without a
    terminal it is never started, so that its refreshes draw nothing.
    """

    def __init__(self, n_trials: int, console: Console | None = None) -> None:
        self._n_trials = n_trials
        self._n_done = 0
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._progress = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[now]}", markup=False),
            console=self._console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("", total=n_trials, now="")
        self._draws = self._console.is_terminal and n_trials > 1

    def __enter__(self) -> Reporter:
        if self._draws:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._draws:
            self._progress.stop()

    def show_trial(self, text: str) -> None:
        self._progress.update(self._task, now=text, refresh=True)

    def write_note(self, text: str) -> None:
        """Write a line about the current trial before it is measured."""
        self._write(f"  {text}")

    def write_result(self, text: str) -> None:
        self._n_done += 1
        self._progress.update(self._task, completed=self._n_done, now="")
        self._write(f"[{self._n_done}/{self._n_trials}] {text}")
        self._progress.refresh()

    def _write(self, line: str) -> None:
        if self._draws:
            self._console.print(line, markup=False, highlight=False)
        else:
            print_message(line)


Options = Mapping[str, Any]  # by the keys of the command line, with dots

_FILE, _CHECKSUM = "dataset.options.path", "dataset.options.sha256"


def format_trials(specs: Sequence[TrialSpec]) -> list[str]:
    """Return the text of each trial, with the options that differ between equal ones."""
    names = [format_trial(build_trial(spec)) for spec in specs]
    options = _list_options(specs)
    alike = defaultdict[str, list[Options]](list)
    for name, values in zip(names, options, strict=True):
        alike[name].append(values)
    apart = {name: _find_differing_keys(group) for name, group in alike.items()}
    return [
        " ".join(
            [name, *(f"{key}={format_value(values[key])}" for key in apart[name] if key in values)]
        )
        for name, values in zip(names, options, strict=True)
    ]


def _list_options(specs: Sequence[TrialSpec]) -> list[Options]:
    """Return the options of trials, with short names of the user's files, without checksums."""
    options = [
        {key.replace("_options.", ".options.", 1): value for key, value in flatten(spec.to_dict())}
        for spec in specs
    ]
    files = shorten_paths(values[_FILE] for values in options if _FILE in values)
    return [
        {
            "dataset.path" if key == _FILE else key: files[value] if key == _FILE else value
            for key, value in values.items()
            if not (key.startswith(_CHECKSUM) and _FILE in values)
        }
        for values in options
    ]


def _find_differing_keys(group: Sequence[Options]) -> list[str]:
    keys = dict.fromkeys(key for values in group for key in values)
    return [key for key in keys if any(values.get(key) != group[0].get(key) for values in group)]
