"""Tolerance of checks at reduced precision: as the trial requests, recorded, and no further."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dynbatch.harness.records.record import Record
from tests.support.measured import MakeSpec, measure, spec_of


def measured(make_spec: MakeSpec, folder: Path, precision: str, kind: str, of: str) -> Record:
    spec = spec_of(make_spec, kind, of)
    options = {**spec.system_options, "precision": precision}
    return measure(replace(spec, system_options=options), folder)


@pytest.mark.parametrize("of", ["float16", "bfloat16"])
def test_requested_reduced_precision_passes_with_warning(
    make_spec: MakeSpec, tmp_path: Path, of: str
) -> None:
    record = measured(make_spec, tmp_path, "bf16", "ComputesInHalfPrecision", of)
    assert (record.status, record.reason) == ("ok", None)
    assert "reduced_precision" in record.warnings
    assert record.check.max_rel_err > 1e-4


@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "half"])
def test_exact_names_and_words_of_others_loosen_nothing(
    make_spec: MakeSpec, tmp_path: Path, precision: str
) -> None:
    record = measured(make_spec, tmp_path, precision, "ComputesInHalfPrecision", "float16")
    assert record.status == "wrong_result"


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        *(("SkipsAnUpdate", name) for name in ("embedding", "U", "b", "F_1", "W_out")),
        ("SumsHalfAGradient", "W"),
        ("SumsHalfAGradientOfMany", "W"),
        ("UpdatesALittle", ""),
    ],
)
def test_wrong_results_fail_in_reduced_precision(
    make_spec: MakeSpec, tmp_path: Path, kind: str, of: str
) -> None:
    assert measured(make_spec, tmp_path, "tf32", kind, of).status == "wrong_result"


def test_it_is_a_workload_of_its_own(make_spec: MakeSpec, tmp_path: Path) -> None:
    exact, lower, near = (
        measured(make_spec, tmp_path / name, name, "Honest", "W").fingerprint
        for name in ("ieee", "bf16", "tf32x3")
    )
    assert exact.workload == near.workload != lower.workload
    assert exact.losses == lower.losses
