"""What a program does is read from its code, and told beside the paper's words."""

from __future__ import annotations

import pytest

from harness.errors import ConfigError
from harness.planning.artefacts import Choices
from plots.drawing.style import use_style
from plots.numbers.control_flow import control_flow
from plots.numbers.gather import gather
from plots.tables import control_flow as table
from tests.support.artefacts import lines_of

NAME = "acrobat_table2"


@pytest.mark.parametrize(
    ("model", "letters"),
    [
        ("tree_lstm", "REC IFP ICF TCF"),
        ("mv_rnn", "REC IFP ICF TCF"),
        ("birnn", "ITE IFP ICF TCF"),
        ("nested_rnn", "ITE TDC ICF TCF"),
        ("drnn", "ITE REC TDC IFP ICF TCF"),
        ("stack_rnn", "ITE TDC ICF TCF"),
        ("berxit", "ITE TDC IFP ICF"),
    ],
)
def test_properties_are_those_of_the_code(choices: Choices, model: str, letters: str) -> None:
    found = control_flow(choices.conf_dir, model)
    named = {
        "ITE": found.iterates,
        "REC": found.recurses,
        "TDC": found.waits,
        "IFP": found.is_parallel,
        "ICF": found.varies,
        "TCF": found.varies_in_training,
    }
    assert " ".join(name for name, has in named.items() if has) == letters


def test_a_model_without_a_program_is_refused(choices: Choices) -> None:
    with pytest.raises(ConfigError, match="tree_fc has no program; leave it out"):
        control_flow(choices.conf_dir, "tree_fc")


def test_the_table_has_the_papers_words_behind_ours(choices: Choices) -> None:
    artefact = gather(NAME, choices, ())
    rows = dict(table.table_of(artefact).rows)
    assert [str(cell) for cell in rows["StackRNN"]] == [
        *("yes", "no", "yes", "no", "yes", "yes"),
        "ITE, TDC, ICF, TCF",
    ]
    use_style()
    table.make(artefact, choices.results_dir)
    (line,) = (
        row
        for row in lines_of(choices.results_dir / f"tables/{NAME}.csv")
        if row["model"] == "berxit"
    )
    assert (line["waits"], line["varies_in_training"]) == ("True", "False")
