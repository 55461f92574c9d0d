"""What tables call a system leads to the name that is typed."""

from __future__ import annotations

from harness.planning.yaml_files import choices_of
from harness.values.places import CONF_DIR
from scripts.write_labels import PAGE, words


def test_the_page_has_the_labels_of_conf() -> None:
    assert PAGE.written == words().strip(), "run python -m scripts.write_labels"


def test_every_system_has_its_label() -> None:
    said = {one.rpartition(" ")[2].strip("`.\n") for one in words().split("; ")}
    assert said == set(choices_of("system", CONF_DIR))
    assert "PyTorch, level batching `torch_levels`" in words()
