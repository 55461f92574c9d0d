"""Stored results: packed or in directories; errors in one line."""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.errors import RecordError
from dynbatch.harness.records import store
from dynbatch.harness.records.count_row import parse_count
from dynbatch.harness.records.record import Record, read_record
from dynbatch.harness.records.store import (
    COUNTS,
    TRIALS,
    RecordSet,
    read_all_records,
    unpack,
    write_packed,
)
from tests.support.made_up_counts import LEARNING, failed_row, made_up_row
from tests.support.records import POINT, content_of, plain_count, plain_record, write_results
from tests.support.refusals import expect_refusal

Patch = pytest.MonkeyPatch
SECONDS = st.just(0.0) | st.floats(min_value=1e-9, max_value=1e9)  # times that a clock can return
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SETTINGS = st.recursive(
    st.none() | st.booleans() | st.integers() | SECONDS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
CHANGES = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["ok", "oom", "crash"]),
        "reason": st.none() | TEXT,
        "passes_s": st.lists(SECONDS, min_size=1, max_size=6).map(tuple),
        "config": st.dictionaries(TEXT, SETTINGS, max_size=3),
        "command": TEXT,
    }
)


@st.composite
def many_records(draw: st.DrawFn) -> list[Record]:
    """Draw records of a few trials, with rounds in any order."""
    names = st.tuples(st.sampled_from(["vertex", "cavs", "dynet"]), st.integers(0, 12))
    chosen = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    return [plain_record(round_, draw(CHANGES), system=system) for system, round_ in chosen]


@settings(max_examples=30, deadline=None)
@given(records=many_records(), seed=st.integers())
def test_packing_keeps_every_value_and_no_order(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("packed")
    write_packed(RecordSet(tuple(records)), folder / "a")
    held = read_all_records([folder / "a"])
    by_name = {(one.trial_id, one.trial.round): one for one in records}
    assert list(held.records) == [by_name[name] for name in sorted(by_name)]

    shuffled = random.Random(seed).sample(records, len(records))
    write_packed(RecordSet((*shuffled, records[0])), folder / "b")
    assert content_of(folder / "a") == content_of(folder / "b")

    unpack(held, folder / "results")
    assert read_all_records([folder / "results"]) == held


def test_counts_come_out_as_they_went_in(tmp_path: Path) -> None:
    failed = failed_row(made_up_row(POINT, count_id="count-b"), "timeout", "too slow")
    learned = plain_count("count-c", policy="fsm_sort", learning=LEARNING, unseen_fraction=0.0)
    rows = [parse_count(json.dumps(failed).encode()), learned, plain_count("count-a")]
    write_packed(RecordSet((), tuple(rows)), tmp_path)
    held = read_all_records([tmp_path])
    assert held == RecordSet((), (rows[2], rows[0], rows[1]))
    assert unpack(held, tmp_path / "results") == 3
    assert read_all_records([tmp_path / "results"]) == held
    assert unpack(held, tmp_path / "results") == 0


def test_a_line_is_sorted_json(tmp_path: Path) -> None:
    write_packed(RecordSet((plain_record(1), plain_record(0))), tmp_path)
    lines = lzma.decompress((tmp_path / TRIALS.packed).read_bytes()).decode().splitlines()
    values = [json.loads(line) for line in lines]
    assert [value["trial"]["round"] for value in values] == [0, 1]
    assert all(list(value) == sorted(value) for value in values)
    assert values[0]["passes_s"] == [0.75]


def replaced_line(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """Return a function that changes the second line of a packed file."""

    def damage(packed: bytes) -> bytes:
        lines = lzma.decompress(packed).splitlines()
        lines[1] = json.dumps(change(json.loads(lines[1]))).encode()
        return lzma.compress(b"\n".join(lines) + b"\n")

    return damage


def make_twin(line: dict[str, Any]) -> dict[str, Any]:
    first_round = {key: line[key] | {"round": 0} for key in ("trial", "config")}
    return line | first_round | {"command": "another"}


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut off": (lambda packed: packed[: len(packed) // 2], "truncated|damaged"),
    "nearly whole": (lambda packed: packed[:-1], "truncated"),
    "a byte": (lambda packed: packed[:60] + bytes([packed[60] ^ 1]) + packed[61:], "damaged"),
    "no xz": (lambda packed: lzma.decompress(packed), "not a packed file"),
    "nothing": (lambda packed: b"", "truncated"),
    "no lines": (lambda packed: lzma.compress(b""), "no complete lines"),
    "more behind": (lambda packed: packed + b"more", "has data after its end"),
    "half a line": (lambda packed: lzma.compress(b'{"trial_id": 1'), "no complete lines"),
    "no JSON": (lambda packed: lzma.compress(b'"trial_id"\n{\n'), "line 1 is not a record"),
    "a field": (replaced_line(lambda line: line | {"colour": 1}), "line 2 .*: colour: "),
    "no field": (
        replaced_line(lambda line: {k: v for k, v in line.items() if k != "status"}),
        "line 2 .*: status: ",
    ),
    "a list": (replaced_line(lambda line: [line]), "line 2 is not a record of schema 3"),
    "a twin": (replaced_line(make_twin), "two different records"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_file_gives_one_line(tmp_path: Path, name: str) -> None:
    damage, words = DAMAGES[name]
    path = tmp_path / TRIALS.packed
    records = (plain_record(round_, {"command": "c" * 99}) for round_ in range(3))
    write_packed(RecordSet(tuple(records)), tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RecordError, match=words) as caught:
        read_all_records([path])
    assert "\n" not in str(caught.value)
    assert name == "a twin" or str(path) in str(caught.value)


def test_oversized_decompressed_data_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    """A few kilobytes of xz may unpack to gigabytes; at most the limit is ever unpacked."""
    bound = 100_000
    monkeypatch.setattr(store, "MAX_BYTES", bound)
    path = tmp_path / TRIALS.packed
    for n_bytes, words in ((bound, "has no complete lines"), (bound + 1, "more than 100000 bytes")):
        path.write_bytes(lzma.compress(b"x" * n_bytes))
        with expect_refusal(words, kind=RecordError):
            read_all_records([path])


def test_damaged_count_gives_one_line(tmp_path: Path) -> None:
    damaged = b'{"count_id": "count-a", "status": "ok"}\n'
    (tmp_path / COUNTS.packed).write_bytes(lzma.compress(damaged))
    with pytest.raises(RecordError, match=r"counts.jsonl.xz, line 1 is not a record of a count"):
        read_all_records([tmp_path])


def test_nothing_is_overwritten_and_nothing_else_written(tmp_path: Path) -> None:
    results = tmp_path / "results"
    other = plain_record(1, {"instances_per_s": 7.0})
    write_results(results, [other], [])
    before = content_of(results)
    records, count = (plain_record(0), plain_record(1)), plain_count()
    with pytest.raises(RecordError, match=r"r1\.json exists with other content"):
        unpack(RecordSet(records, (count,)), results)
    assert content_of(results) == before

    write_results(results / "2", list(records), [plain_count(n_batches=99)])
    before = content_of(results)
    with pytest.raises(RecordError, match=r"count-a\.json exists with other content"):
        unpack(RecordSet((plain_record(5),), (count,)), results / "2")
    assert content_of(results) == before


def test_a_damaged_record_that_is_there_stays(tmp_path: Path) -> None:
    held = RecordSet((plain_record(),))
    unpack(held, tmp_path)
    (path,) = tmp_path.rglob("r0.json")
    path.write_text("{")
    with pytest.raises(RecordError, match="other content"):
        unpack(held, tmp_path)
    assert path.read_text() == "{"


@pytest.mark.parametrize("name", ["../../outside", "/tmp/outside", "..", "a/b", "", "-rf"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    results = tmp_path / "a" / "results"
    for held in (
        RecordSet((plain_record(changes={"trial_id": name}),)),
        RecordSet((), (plain_count(name),)),
    ):
        with pytest.raises(RecordError, match="is not a valid file name"):
            unpack(held, results)
    assert content_of(tmp_path) == {}


def test_superseded_records_are_left_out(tmp_path: Path) -> None:
    old, new = plain_record(changes={"instances_per_s": 1.0}), plain_record()
    write_results(tmp_path, [old, new], [plain_count(n_batches=50), plain_count()])
    assert len(list(tmp_path.rglob("superseded/*.json"))) == 2
    assert read_all_records([tmp_path / "raw"]) == RecordSet((new,), (plain_count(),))
    (path,) = tmp_path.rglob("r0.json")
    assert read_record(path) == new
