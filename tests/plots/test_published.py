"""Published tables: complete, consistent with their papers' text, and read with their sources."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from dynbatch.harness.errors import ConfigError
from dynbatch.plots.published import FOLDER, PUBLISHED, read_published
from tests.support.experiments import select_number


def test_every_table_is_read_and_names_its_source() -> None:
    """tests/whole/test_reference.py proves that no number is missing, from committed tables."""
    for path in FOLDER.glob("*.yaml"):
        models = yaml.safe_load(path.read_text(encoding="utf-8")).get("parts", [None])
        for table in (read_published(path.stem, model) for model in models):
            assert set(table.status) == {PUBLISHED}, path
            assert table.source.str.len().min() > 20


def test_rows_and_columns_become_settings() -> None:
    large = {"model": "drnn", "hidden_size": 512, "batch_size": 64, "system": "ACRoBat"}
    number = select_number(read_published("acrobat_table4"), **large)
    assert (number.quantity, number.value) == ("mini_batch_ms", 9.99)
    moving = read_published("cavs_table2")
    assert select_number(
        moving, quantity="moving_s", system="Cavs", mode="train", batch_size=256
    ).value == pytest.approx(0.17)
    counts = read_published("simulated_batch_counts")
    assert select_number(counts, model="mv_rnn", batch_size=8, policy="agenda").value == 91
    assert not len(counts.query("model == 'mv_rnn' and policy == 'fsm_sort'")), "not published"


def test_speedups_of_the_short_paper_follow_from_its_times() -> None:
    keys = {"tree_lstm_child_sum": "batch_size", "tree_fc": "dataset.options.n_leaves"}
    for model, key in keys.items():
        table = read_published("cavs_short_table1", model)
        times = table[table.quantity == "instance_s"].set_index([key, "system"]).value
        for row in table[table.quantity == "instance_s over base"].to_dict("records"):
            ratio = times[row[key], row["system"]] / times[row[key], "Cavs"]
            assert ratio == pytest.approx(row["value"], rel=0.21), row


def test_gains_of_dynet_are_those_of_its_abstract() -> None:
    """The abstract states 3.6 to 9.2 times on the CPU and 2.7 to 8.6 times on the GPU."""
    table = read_published("dynet_table1").set_index(["model", "system"]).value.unstack()  # noqa: PD010
    for device, low, high in (("CPU", 3.6, 9.3), ("GPU", 2.7, 8.7)):
        gains = table[f"Agenda, {device}"] / table[f"NoAuto, {device}"]
        assert round(gains.min(), 1) == low
        assert gains.max() == pytest.approx(high, abs=0.11)


def test_speedups_of_acrobat_follow_from_its_times() -> None:
    """Printed speedups are ratios of the printed times, for all configurations but two."""
    table = read_published("acrobat_table4")
    keys = ["model", "hidden_size", "batch_size"]
    times = table[table.quantity == "mini_batch_ms"].pivot(  # noqa: PD010
        index=keys, columns="system", values="value"
    )
    printed = table[table.quantity == "instance_s over base"].set_index(keys).value
    assert len(times) == 28
    missing = times.index[times.DyNet.isna()].tolist()
    assert missing == [("berxit", 768, 64), ("berxit", 1024, 64)]
    ratios = (times.DyNet / times.ACRoBat).dropna()
    pd.testing.assert_series_equal(ratios, printed[ratios.index], check_names=False, rtol=0.015)


def test_ratios_of_the_subgraphs_follow_from_their_pairs() -> None:
    table = read_published("edbatch_table2")
    cells = table.pivot_table(
        index="model.options.cell", columns=["quantity", "system"], values="value"
    )
    dynet, pq = (cells.xs(system, axis=1, level="system") for system in ("DyNet", "PQ tree"))
    ratios = dynet / pq
    printed = cells["forward_ms over base", "DyNet"]
    pd.testing.assert_series_equal(ratios.forward_ms, printed, check_names=False, rtol=0.1)
    copies = ratios[["n_copies", "copied_kb"]].round(2)
    assert (*copies.loc["gru"], *copies.loc["mv"]) == (3, 47.57, 1, 1)
    assert copies.copied_kb["tree_lstm_leaf"] == 66


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'cavs_short_tabel1'.*cavs_short_table1"):
        read_published("cavs_short_tabel1")
    with pytest.raises(
        ConfigError, match=r"'cavs_short_table1': unknown model 'lattice_lstm'.*tree_fc"
    ):
        read_published("cavs_short_table1", "lattice_lstm")
    with pytest.raises(ConfigError, match=r"'acrobat_table4': not split by model, got 'drnn'"):
        read_published("acrobat_table4", "drnn")
    content = "paper: A\nwhere: B\nshort: C\nhardware: D\nkey: model\ncolumns: [[a], [b]]\n"
    (tmp_path / "odd.yaml").write_text(content + "rows: {gru: [1]}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"row gru: expected 2 numbers.*got 1"):
        read_published("odd", folder=tmp_path)
