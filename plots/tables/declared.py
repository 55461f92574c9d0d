"""Declared tables (plots/declaration.py): numbers from rows of trials or counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from dynbatch.harness.errors import ConfigError, suggest_name
from dynbatch.harness.records.numbers import (
    NOT_MEASURED,
    NOT_SEPARABLE,
    RATIO,
    merge_seeds,
    numbers,
    ratios,
    select_fastest,
)
from dynbatch.harness.records.tidy import SEED, get_quantity, is_setting
from dynbatch.plots import captions
from dynbatch.plots.declaration import (
    BASE,
    BEST_BASELINE,
    CEILING,
    GRAPH_FACTS,
    GROUP_TITLES,
    MEAN,
    OVER,
    PER_INSTANCE,
    TableDeclaration,
    check_name,
)
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.published import PUBLISHED, read_published
from dynbatch.plots.tables.cells import PAPER, Table, format_number, format_plain, pivot_numbers

QUANTITY, SETTING, SYSTEM, FAMILY, POLICY = "quantity", "setting", "system", "family", "policy"
EXTRA_KINDS = {BEST_BASELINE: captions.FRAMEWORK, CEILING: "upper_bound"}
EXTRA_LABELS = {BEST_BASELINE: "fastest baseline", CEILING: "matmul bound"}
SPEEDS = ("throughput", "instance_s")  # quantities of extra rows for baselines and the matmul bound


def build(experiment: Experiment) -> list[Table]:
    """Build a table for each comparison, or one of all rows if the experiment compares nothing."""
    declaration = experiment.declaration.read_options("table", TableDeclaration)
    check_names(experiment, declaration)
    settings, counts = declaration.settings, experiment.counts
    rows = select_settings(experiment.rows, settings)
    experiment = replace(experiment, rows=rows, counts=select_settings(counts, settings))
    groups: Mapping[str, Sequence[str]] = experiment.compare or {"": ()}
    tables = []
    for stem, (group, systems) in zip(experiment.declaration.stems, groups.items(), strict=False):
        base = experiment.label(systems[0]) if systems else ""
        shown = replace(declaration, values=declaration.select_labels(group, base))
        results = evaluate(experiment, shown, systems)
        cells = arrange(experiment, shown, results, systems)
        title = captions.build_title(experiment) + (f": {GROUP_TITLES[group]}" if group else "")
        notes = captions.build_footnotes(experiment, shown, results, systems, cells)
        results = results.drop(columns=["short", "device"], errors="ignore")
        tables.append(Table(stem, title, results, cells, notes))
    return tables


def check_names(experiment: Experiment, declaration: TableDeclaration) -> None:
    """Check the settings and the sides of ratios in a declaration."""
    file, has_base = experiment.declaration.file, declaration.base or experiment.compare
    sides = ["", *EXTRA_KINDS, *experiment.kinds, *([BASE] if has_base else [])]
    for value in declaration.values:
        check_name(file, "side of a ratio", value.partition(OVER)[2], sides)
    known = {QUANTITY, SETTING, *map(str, experiment.rows), *map(str, experiment.counts)}
    asked = [*declaration.rows, *declaration.columns, *declaration.base]
    asked += [key for setting in declaration.settings.values() for key in setting]
    for key in asked:
        if key not in known and not is_setting(key):
            raise ConfigError(f"{file}: no trial has the setting {key!r}{suggest_name(key, known)}")


def evaluate(
    experiment: Experiment, declaration: TableDeclaration, systems: Sequence[str] = ()
) -> pd.DataFrame:
    """Compute the numbers of a table.

    Args:
        systems: systems of the comparison, the base first; all systems if empty.

    Returns:
        A row per number: keys, `system` (the fastest of variants), `quantity` as declared, `label`,
        `role` ("", best_baseline, ceiling, published, ...) and the columns of `numbers`.
    """
    is_timed = not len(experiment.counts)
    data = experiment.rows if is_timed else experiment.counts.query("mini_batch == 0")
    keys = [key for key in (*declaration.rows, *declaration.columns) if key != QUANTITY]
    data = data.assign(**{key: None for key in keys if key not in data})
    unmeasured = declaration.unmeasured
    data = data.assign(**{name: np.nan for name in unmeasured if name not in data})
    base = declaration.base or {SYSTEM: [*systems[:1]]}
    at = [key for key in keys if key not in (*base, SYSTEM, POLICY)]
    shown = data[data.system.isin(systems)] if systems else data
    if SYSTEM in declaration.columns:
        shown = merge_variants(experiment, shown, at)
    names = (name for name in (SYSTEM, FAMILY, SEED) if name in shown and shown[name].notna().any())
    by = list(dict.fromkeys([*keys, *names]))
    sides = {"": shown, BASE: select(shown, base)}
    sides |= build_sides(declaration, data, experiment, at, sides[BASE] if SYSTEM in base else None)
    results = []
    for value in (*declaration.values, *([captions.UNSEEN] if systems else [])):
        quantity, over, side = value.partition(OVER)
        extra = [role for role in declaration.extra if role in EXTRA_KINDS and quantity in SPEEDS]
        for role in ("", *extra) if len(sides.get(side, ())) else ():  # otherwise not planned
            rows = ratios(sides[role], sides[side], at, quantity) if over else sides[role]
            if side == BASE and set(base) <= set(declaration.columns):
                rows = rows.drop(select(rows, base).index)  # its ratios are 1
            if not is_timed or quantity == captions.UNSEEN:  # drop rows without the quantity
                rows = rows[(rows.status != "ok") | get_quantity(rows, quantity).notna()]
            frame = merge_seeds(numbers(rows, by, RATIO if over else quantity))
            results.append(frame.assign(quantity=value, role=role))
    if MEAN in declaration.extra and len(data):
        results.append(average_rows(pd.concat(results), declaration))
    # Facts of a graph are the same for all policies, but failed counts do not have them.
    for fact in filter(GRAPH_FACTS.get, declaration.extra):
        graphs = pd.concat([data[data.status == "ok"], data]).drop_duplicates(at).sort_index()
        results.append(numbers(graphs, at, fact).assign(policy=GRAPH_FACTS[fact], role=fact))
    if not any(map(len, results)):
        raise ConfigError(f"{experiment.declaration.file}: its table has no rows at this scale")
    if declaration.published:
        results.append(evaluate_published(declaration))
    frame = pd.concat([frame for frame in results if len(frame)], ignore_index=True)
    frame = frame[(frame.quantity != captions.UNSEEN) | (frame.status == "ok")]
    is_lacking = frame.quantity.isin(unmeasured) & (frame.status == NOT_SEPARABLE)
    frame["status"] = frame.status.mask(is_lacking, NOT_MEASURED)
    frame["label"] = frame.quantity.map(declaration.values)
    return scale_to_epochs(frame, declaration)


def build_sides(
    declaration: TableDeclaration,
    data: pd.DataFrame,
    experiment: Experiment,
    at: Sequence[str],
    base: pd.DataFrame | None,
) -> dict[str, pd.DataFrame]:
    """Return the rows of each system and of the fastest of each kind that the table needs.

    Args:
        base: the system to which others are compared, if it is one.
    """
    needed = {*declaration.extra, *(value.partition(OVER)[2] for value in declaration.values)}
    sides = {name: data[data.system == name] for name in needed & {*data.system}}
    kinds = data.system.map(experiment.kinds)
    for name in needed & EXTRA_KINDS.keys():
        sides[name] = select_fastest(data[kinds == EXTRA_KINDS[name]], at, base)
    return sides


def scale_to_epochs(results: pd.DataFrame, declaration: TableDeclaration) -> pd.DataFrame:
    """Convert our times per instance to times per epoch, which papers give."""
    is_time = results.quantity.isin(PER_INSTANCE) & (results.role != PUBLISHED)
    epoch, ends = declaration.epoch, ["value", "low", "high"]
    sizes = results.setting.map(epoch) if isinstance(epoch, Mapping) else epoch
    results[ends] = results[ends].astype(float).mul(np.where(is_time, sizes, 1), axis=0)
    return results


def average_rows(results: pd.DataFrame, declaration: TableDeclaration) -> pd.DataFrame:
    """Average numbers over the rows that share the first key of rows; the second becomes "mean".

    The mean has the warnings of its rows, and no number if any of them has none.
    """
    first, second, *_ = declaration.rows
    keys = [first, *(key for key in declaration.columns if key != QUANTITY), QUANTITY]
    means = results.groupby(keys, sort=False, dropna=False).agg(
        value=("value", lambda values: values.mean(skipna=False)),
        status=("status", lambda statuses: min(statuses, key="ok".__eq__)),
        n_rounds=("n_rounds", "min"),
        warnings=("warnings", lambda texts: " ".join(sorted({*" ".join(texts).split()}))),
        is_partial=("is_partial", "any"),
    )
    shared: dict[str, Any] = {"low": np.nan, "high": np.nan}
    return means.reset_index().assign(**{second: MEAN, "role": MEAN}, **shared)


def evaluate_published(declaration: TableDeclaration) -> pd.DataFrame:
    """Return a paper's numbers for the quantities of a table; their setting is the paper's name."""
    asked = dict(declaration.published or {})
    results = read_published(asked.pop("table"), asked.pop("model", None))
    results = select(results, asked).drop(columns=[*asked]).assign(role=PUBLISHED)
    results = results[results.quantity.isin([*declaration.values, *declaration.extra])]
    if POLICY in results:
        results[POLICY] = results.quantity.map(GRAPH_FACTS).fillna(results.policy)
    if SETTING in (*declaration.rows, *declaration.columns):
        results[SETTING] = results.short
    return results


def select_settings(rows: pd.DataFrame, settings: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Select the rows of each setting, with its label in the column `setting`.

    Settings without a planned trial are dropped, and those without a record if others have one.
    """
    if not settings:
        return rows
    parts = [select(rows, wanted).assign(setting=label) for label, wanted in settings.items()]
    measured = [part for part in parts if len(part) and part.trial_id.notna().any()]
    return pd.concat(measured or parts, ignore_index=True)


def select(rows: pd.DataFrame, wanted: Mapping[str, Any]) -> pd.DataFrame:
    """Select rows with the wanted settings; a list allows several values, None allows no value."""
    for key, value in wanted.items():
        allowed = value if isinstance(value, list) else [value]
        values = rows.get(key, pd.Series(None, rows.index, dtype=object))
        rows = rows[values.isin(allowed) | (values.isna() & (None in allowed))]
    return rows


def merge_variants(experiment: Experiment, rows: pd.DataFrame, at: Iterable[str]) -> pd.DataFrame:
    """Keep only the fastest of the variants of a system at each point.

    The column `family` names the first variant, whose label all variants share.
    """
    heads = {system.name: system.variant_of for system in experiment.systems if system.variant_of}
    family = rows.system.map(lambda name: heads.get(name, name))
    n_members = rows.system.groupby(family).transform("nunique")
    rows = rows.assign(family=family.where(n_members > 1, rows.system))
    return select_fastest(rows, [*at, FAMILY]) if (n_members > 1).any() else rows


def arrange(
    experiment: Experiment,
    declaration: TableDeclaration,
    results: pd.DataFrame,
    systems: Sequence[str] = (),
) -> pd.DataFrame:
    """Arrange numbers as cells: extra rows last, a paper's rows and columns after ours."""
    shown = results[results.quantity != captions.UNSEEN]
    for key in set(declaration.rows) - {SYSTEM, SETTING}:  # omit a paper's other workloads
        is_ours = shown.role != PUBLISHED
        shown = shown[is_ours | shown[key].isin(shown[key][is_ours])]
    texts = shown.assign(text=[_format_cell(experiment, number) for _, number in shown.iterrows()])
    texts[QUANTITY] = texts.label.fillna("graph")
    if SYSTEM in texts:
        names = texts.get(FAMILY, texts.system).fillna(texts.system)
        names = names.where(texts.role != PUBLISHED, PAPER + names)
        texts[SYSTEM] = names.where(~texts.role.isin(EXTRA_LABELS), texts.role)
    known: Mapping[str, Iterable[Any]] = {
        QUANTITY: declaration.values.values(),
        SETTING: declaration.settings,
        SYSTEM: [*systems, *EXTRA_LABELS],
    }
    headers = {}
    for key in (*declaration.rows, *declaration.columns):
        headers[key] = captions.spell_key(key)
        prefix = "" if key in declaration.rows else f"{headers[key]} "
        values = texts[key].astype(object).where(texts[key].notna(), "")
        # Numbers by size, then known values in their order, then others in order of appearance.
        order = dict.fromkeys([*known.get(key, ()), *values])
        labels = {
            value: _format_key(experiment, key, value, prefix)
            for value in sorted(order, key=lambda v: v if isinstance(v, Real) else math.inf)
        }
        texts[key] = pd.Categorical(values.map(labels), [*dict.fromkeys(labels.values())])
    rows = {key: headers[key] for key in declaration.rows if any(texts[key] != "")}
    return pivot_numbers(texts, rows, declaration.columns, attrgetter("text"))


def _format_cell(experiment: Experiment, number: pd.Series) -> str:
    """Format a number; speeds in extra rows name their system, which differs by column."""
    is_named = number.role in EXTRA_LABELS and OVER not in number.quantity
    return (f"{experiment.label(number.system)}: " if is_named else "") + format_number(number)


def _format_key(experiment: Experiment, key: str, value: Any, prefix: str) -> str:
    """Format the value of a key; numbers get a prefix, which names the key in column labels."""
    if isinstance(value, Real):
        return prefix + format_plain(float(value))
    if key == "granularity":
        return f"{value} granularity"
    labels = {**EXTRA_LABELS, **(captions.MODES if key == "mode" else {})}
    return labels.get(value) or experiment.label(value)
