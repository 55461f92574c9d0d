"""Published numbers, looks, and how tables spell and escape what they print."""

from __future__ import annotations

import pytest

from harness.errors import ConfigError, RecordError
from harness.planning.grid import expand, experiment_names
from harness.values.places import CONF_DIR
from plots.drawing.style import looks_of
from plots.drawing.table import draw_table
from plots.numbers.presentation import read_presentation
from plots.numbers.published import read_published
from plots.numbers.table import EN_DASH, Cell, Column, Table, three_digits
from plots.writing.render import to_html, to_latex, to_markdown


def test_published_tables_name_their_source_and_are_complete() -> None:
    for name in ("cavs_atc18_table1", "cavs_short_table1"):
        for model in ("tree_lstm", "tree_fc"):
            published = read_published(name, model)
            assert len(published.xs) == 6
            assert len({(q, s) for q, s, _ in published.values}) * 6 == len(published.values)
            assert "Titan X" in published.source


def test_the_short_papers_speedups_follow_from_its_times() -> None:
    for model in ("tree_lstm", "tree_fc"):
        published = read_published("cavs_short_table1", model)
        for (quantity, system, x), printed in published.values.items():
            if quantity == "overall_speedup":
                ours = published.value("epoch_s", "cavs", x)
                theirs = published.value("epoch_s", system, x)
                assert ours is not None
                assert theirs is not None
                assert theirs / ours == pytest.approx(printed, rel=0.21), (model, system, x)


def test_an_unknown_published_table_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="cavs_short_table1"):
        read_published("nowhere", "tree_lstm")
    with pytest.raises(ConfigError, match="tree_fc"):
        read_published("cavs_short_table1", "lattice_lstm")


def test_looks_are_distinct_within_a_comparison() -> None:
    """Of what is measured at the papers' sizes; beyond eleven systems, colour and marker as one."""
    for name in experiment_names():
        grid = expand(name, "paper")
        measured = {one["system"] for one in grid.settings}
        for systems in read_presentation(name, CONF_DIR).compare.values():
            looks = looks_of([system for system in systems if system in measured]).values()
            assert len({(look.color, look.marker) for look in looks}) == len(looks), name
            for part in ("color", "marker") if len(looks) <= 11 else ():
                assert len({getattr(look, part) for look in looks}) == len(looks), (name, part)


NAMED = ("vertex", "dynet", "dynet_depth", "torch_levels")
NEW = tuple(f"somebody's system {n}" for n in range(8))


def test_new_systems_need_no_entry_to_be_drawn() -> None:
    for n in range(len(NEW)):
        looks = looks_of([*NAMED, *NEW[: n + 1]])
        for part in ("color", "marker"):
            shown = [getattr(look, part) for look in looks.values()]
            assert len(set(shown)) == len(shown) or len(shown) > 11, (n, part)
        assert all(looks[name] == looks_of([name])[name] for name in NAMED)


def test_a_new_system_looks_the_same_whatever_is_beside_it() -> None:
    """But where somebody has its colour or marker, which is told by the look of the other."""
    alone = {name: looks_of([name])[name] for name in NEW}
    for name, look in alone.items():
        beside = [looks_of([other])[other] for other in NAMED]
        if all(look.color != one.color and look.marker != one.marker for one in beside):
            assert looks_of([*NAMED, name])[name] == look
    assert looks_of(NEW) == looks_of(NEW[::-1]), "whatever their order"


def test_many_systems_still_look_unlike() -> None:
    looks = looks_of([f"system {n}" for n in range(60)])
    assert len(set(looks.values())) == 60


def test_two_presets_of_one_idea_are_told_apart_beside_each_other() -> None:
    alone = {name: looks_of([name])[name] for name in ("cavs", "cavs_dynet")}
    assert alone["cavs"] == alone["cavs_dynet"]
    beside = looks_of(["cavs", "cavs_dynet"])
    assert beside["cavs"] == alone["cavs"]
    assert beside["cavs_dynet"].color != alone["cavs"].color


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.001234, "0.00123"),
        (0.12, "0.120"),
        (1.0, "1.00"),
        (12.34, "12.3"),
        (99.99, "100"),
        (123.4, "123"),
        (15234.0, "15200"),
        (1.5e-5, "0.000015"),
    ],
)
def test_three_digits(value: float, text: str) -> None:
    assert three_digits(value) == text


@pytest.mark.parametrize("with_dash", [True, False])
def test_a_dash_is_explained_where_there_is_one(with_dash: bool) -> None:
    table = Table(
        title="T",
        subtitle="",
        row_label="n",
        columns=(Column("a", "x"), Column("a", "y")),
        rows=(("1", (Cell("12"), Cell(EN_DASH if with_dash else "a \N{EN DASH} b"))),),
        notes=("A note.",),
    )
    for text in (to_markdown(table), to_html(table), to_latex(table)):
        assert text.count("not part of this scale") == with_dash
    drawn = " ".join(text.get_text() for text in draw_table(table).texts)
    assert ("not part of this scale" in drawn) == with_dash
    assert "A note." in drawn


def test_a_column_of_no_group_has_its_label_alone_as_head() -> None:
    table = Table(
        "t", "", "n", (Column("", "a"), Column("g", "b")), (("1", (Cell("1"), Cell("2"))),), ()
    )
    assert "| n | a | g: b |" in to_markdown(table)


def test_tables_escape_what_their_formats_would_misread() -> None:
    table = Table(
        title="50% & more_of <it>",
        subtitle="",
        row_label="n",
        columns=(Column("a_b", "x & y"),),
        rows=(("1", (Cell("out_of<memory>", warned=True),)),),
        notes=(),
    )
    assert r"50\% \& more\_of" in to_latex(table)
    assert r"out\_of<memory>$^\dagger$" in to_latex(table)
    assert "out_of&lt;memory&gt;" in to_html(table)
    with pytest.raises(RecordError, match="1 cells for 2 columns"):
        Table("t", "", "n", (Column("g", "a"), Column("g", "b")), (("1", (Cell("1"),)),), ())
