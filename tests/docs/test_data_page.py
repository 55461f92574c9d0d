"""docs/data.md as a user with a file of one's own follows it: its commands run as printed."""

from __future__ import annotations

import re
from pathlib import Path

from dynbatch.datasets.instances import KINDS, list_keys
from dynbatch.harness.contracts.corpus import load_corpus
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.planning.yaml_files import find_models, list_formats, read_mapping
from dynbatch.harness.values.paths import CONF_DIR, ROOT
from tests.support.adding import sections_of

PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
(SECTION,) = sections_of(PAGE)
SECTION_TEXT = PAGE.partition(f"## {SECTION.title}\n")[2].partition("\n## ")[0]
# Models of single cells and of programs, which have data of their own, and of the engine only.
OTHERS = ("cell", "gated_lattice_lstm", "berxit", "birnn", "drnn", "nested_rnn", "stack_rnn")
EVERYWHERE = ("vertex", "dynet", "torch_levels")  # systems that run every model of own data


def test_three_commands_lead_from_a_file_to_a_ranking(tmp_path: Path) -> None:
    assert len(SECTION.commands) == 3
    SECTION.write(tmp_path)
    SECTION.follow(tmp_path, PYTHONPATH=str(ROOT))


def test_the_page_lists_every_format_with_its_models() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\|(.*)\|$", SECTION_TEXT, re.MULTILINE))
    assert set(list_formats()) <= set(rows)
    systems = [one for one in read_systems(CONF_DIR) if one.name in EVERYWHERE]
    assert len(systems) == len(EVERYWHERE)
    for name in set(list_formats()) - {"instances"}:
        content = read_mapping(CONF_DIR / "dataset" / f"{name}.yaml")
        fitting = find_models(content["instance_kind"], content.get("labels", "classes"))
        listed = re.findall(r"`(\w+)`", rows[name])
        assert set(listed) <= set(fitting) <= {*listed, *OTHERS}
        assert all(system.can_run(model) for system in systems for model in listed)


def test_the_page_has_the_keys_of_json_lines() -> None:
    for kind in KINDS:
        needed, allowed = list_keys(kind)
        (row,) = re.findall(rf"^\| `{kind}` \|(.*)\|$", SECTION_TEXT, re.MULTILINE)
        keys = row.partition("(")[0] if kind != "tree" else row
        assert re.findall(r"`(\w+)`", keys) == allowed
        assert needed == allowed[: len(needed)]


def test_examples_of_files_are_read(tmp_path: Path) -> None:
    (lattices,) = re.findall(r"```text\n(1\n3\n.*?)```", SECTION_TEXT, re.DOTALL)
    (line,) = re.findall(r'`(\{"words".*?\})`', SECTION_TEXT)
    for module, text in (("weibo_lattice", lattices), ("instances", line)):
        (tmp_path / module).write_text(text, encoding="utf-8")
        path = str(tmp_path / module)
        corpus = load_corpus(f"dynbatch.datasets.{module}", "train", None, path=path)
        assert len(corpus.instances) == 1
