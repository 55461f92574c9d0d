"""The guard of redrawn numbers finds what differs, and knows renamed columns and quantities."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import compare_numbers

OLD = """comparison,system,axis,x,quantity,value,low,high,n_rounds,status,warnings
systems,vertex,batch_size,16.0,epoch_s,2.0,1.0,3.0,3,ok,b a
systems,dynet,batch_size,16.0,overall_speedup,1.5,,,1,ok,
systems,dynet,batch_size,64.0,epoch_s,,,,3,missing,
"""
NEW = """system,batch_size,quantity,value,low,high,n_rounds,status,warnings,role
vertex,16,instance_s,2.0000000000001,1.0,3.0,3,ok,a b,
dynet,16,instance_s over base,1.5,,,1,ok,,
dynet,64,instance_s,,,,,not measured,,
"""


def compare(folder: Path, old: str, new: str) -> int:
    for name, text in (("old", old), ("new", new)):
        (folder / name / "tables").mkdir(parents=True, exist_ok=True)
        (folder / name / "tables/t.csv").write_text(text, encoding="utf-8")
    return compare_numbers.main([str(folder / "old"), str(folder / "new")])


def test_renamed_numbers_are_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(tmp_path, OLD, NEW) == 0
    assert "12 equal, 0 different, 0 missing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (("2.0000000000001", "2.00001"), "different"),
        (("ok,a b", "ok,a"), "different"),
        (("dynet,16", "dynet,32"), "missing"),
    ],
)
def test_what_differs_is_named(
    change: tuple[str, str], state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(tmp_path, OLD, NEW.replace(*change)) == 1
    assert f"t: {state}: system=" in capsys.readouterr().out


def test_columns_of_wide_files_are_quantities(tmp_path: Path) -> None:
    old = "model,batch_size,policy,n_batches,lower_bound\nmv_rnn,8,agenda,91,57\n"
    keys = "mv_rnn,8,agenda"
    long = f"{keys},n_batches,91.0\n{keys},lower_bound,57.0\n"
    assert compare(tmp_path, old, f"model,batch_size,policy,quantity,value\n{long}") == 0
    assert compare(tmp_path, old, old.replace("91", "92")) == 1
