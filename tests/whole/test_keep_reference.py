"""Conversion of a results directory to its committed form by `scripts/keep_reference.py`."""

from __future__ import annotations

import lzma
from io import BytesIO
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from dynbatch.harness.commands.collect import read_held
from dynbatch.harness.planning.artifacts import Choices, build_choices, plan_artifact
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import list_experiment_names
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots import drawable
from dynbatch.plots.report import N_COLORS, shrink_picture
from scripts import keep_reference
from tests.support.records import content_of, write_made_up_records
from tests.support.refusals import Output, read_refusal

TABLE = "cavs_table1_tree_lstm"


def test_a_small_picture_keeps_its_rare_colours(tmp_path: Path) -> None:
    pixels = np.full((900, 2000, 3), 255, dtype=np.uint8)
    pixels[:, :1500] = np.arange(900, dtype=np.uint16)[:, None, None] * 255 // 899  # 256 grays
    lines = {100: (213, 94, 0), 200: (0, 114, 178), 300: (0, 158, 115), 400: (204, 121, 167)}
    for row, color in lines.items():
        pixels[row : row + 4, 1600:] = color
    picture = tmp_path / "large.png"
    Image.fromarray(pixels).save(picture)

    (tmp_path / "small.png").write_bytes(shrink_picture(picture, 1000)[0])
    with Image.open(tmp_path / "small.png") as image:
        assert image.size == (1000, 450)
        few = np.asarray(image.convert("RGB")).astype(int)
    assert len(np.unique(few.reshape(-1, 3), axis=0)) <= N_COLORS
    for row, color in lines.items():
        assert np.abs(few[row // 2, 900] - color).max() <= 24

    Image.fromarray(pixels[:50, :70]).save(picture)
    (tmp_path / "small.png").write_bytes(shrink_picture(picture, 1000)[0])
    with Image.open(tmp_path / "small.png") as image:
        assert image.size == (70, 50)


def test_gray_fills_of_a_small_picture_have_no_tint(tmp_path: Path) -> None:
    """Texts of several colors, whose edges blend into white and gray, share the palette."""
    shares = np.random.default_rng(0).random((16, 900, 1)) ** 2
    pixels = np.full((200, 900, 3), 255.0)
    pixels[100:] = 245
    inks = [(213, 94, 0), (0, 114, 178), (0, 158, 115), (204, 121, 167), (34, 34, 34)]
    for n, (top, ink) in enumerate(product((0, 100), inks)):
        rows = slice(top + n % 5 * 16, top + n % 5 * 16 + 16)
        pixels[rows] = pixels[rows] * (1 - shares) + np.array(ink) * shares
    Image.fromarray(pixels.round().astype(np.uint8)).save(tmp_path / "large.png")
    (tmp_path / "small.png").write_bytes(shrink_picture(tmp_path / "large.png", 900)[0])
    with Image.open(tmp_path / "small.png") as image:
        assert image.convert("RGB").getpixel((5, 195)) == (245, 245, 245)


@pytest.fixture(autouse=True)
def _few_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restrict the drawable experiments to those of one paper, and share one Composer."""
    names = [name for name in list_experiment_names() if name.startswith("cavs_")]
    composer = Composer(CONF_DIR)
    monkeypatch.setattr(drawable, "list_experiment_names", lambda _: names)
    monkeypatch.setattr(drawable, "Composer", lambda _: composer)


@pytest.fixture
def choices(tmp_path: Path) -> Choices:
    printed = {"scale": "smoke", "device": "cpu", "results_dir": tmp_path / "results"}
    return build_choices(printed, {}, frozenset({"sst"}))


@pytest.mark.slow
def test_a_folder_of_results_becomes_a_committed_one_again_and_again(
    choices: Choices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def savefig(_figure: Figure, file: BytesIO, **options: object) -> None:
        if options["format"] == "png":
            Image.new("RGB", (20, 10)).save(file, "png")

    monkeypatch.setattr(Figure, "savefig", savefig)
    write_made_up_records(plan_artifact(TABLE, choices, Composer(choices.conf_dir)), choices)
    folder = tmp_path / "some-machine" / "smoke"
    assert keep_reference.main([str(choices.results_dir), str(folder)]) == 0
    first = content_of(folder)
    assert {f"tables/{TABLE}_systems.md", f"tables/{TABLE}_strategies.csv.xz"} <= first.keys()
    assert {"README.md", "records.jsonl.xz"} <= first.keys()
    assert "tables/cavs_lines_of_code.md" in first, "it measures nothing, so it lacks nothing"
    assert b"| `cavs_lines_of_code` |" in first["README.md"]
    assert not {name for name in first if name.endswith((".pdf", ".html"))}
    assert b"Made-up CPU" in first["README.md"]
    assert f"| `{TABLE}` |".encode() in first["README.md"]

    (folder / "tables" / "outdated.md").touch()
    again = [str(folder), str(folder), "--scale=smoke"]
    assert keep_reference.main(again) == 0
    assert content_of(folder) == first
    assert keep_reference.main([*again, "--partial"]) == 0
    more = content_of(folder)
    assert more.keys() > first.keys(), "artifacts that share some of the trials"
    assert {name for name in first if more[name] != first[name]} <= {"README.md"}


@pytest.mark.slow
def test_artifacts_are_kept_by_name(choices: Choices, tmp_path: Path, capsys: Output) -> None:
    write_made_up_records(plan_artifact(TABLE, choices, Composer(choices.conf_dir)), choices)
    typed = [str(choices.results_dir), str(tmp_path / "some-machine" / "smoke"), "--only"]
    assert keep_reference.main([*typed, TABLE, "cavs_fig10a"]) == 1
    assert "no record of cavs_fig10a, which --only selects" in capsys.readouterr().err
    assert keep_reference.main([*typed, TABLE]) == 0
    names = [path.name for path in (tmp_path / "some-machine/smoke/tables").iterdir()]
    kinds = ("systems", "strategies")
    assert {name.partition(".")[0] for name in names} == {f"{TABLE}_{kind}" for kind in kinds}

    folder = typed[1]
    assert keep_reference.main([folder, folder, "--only"]) == 0, "no name: records alone"
    assert {*content_of(Path(folder))} == {"README.md", "records.jsonl.xz"}


def test_local_paths_are_removed_from_committed_records(choices: Choices) -> None:
    write_made_up_records(plan_artifact(TABLE, choices, Composer(choices.conf_dir)), choices)
    record, *_ = read_held([choices.results_dir / "raw"], latest=True).records
    # A path is quoted in its value, for Hydra, and with its key, for the shell.
    quoted = "'results_dir='\"'\"'/tmp/somebody'\"'\"''"
    typed = f"bench -m data_root=/home/somebody/data {quoted} seed=1,2"
    places = {"data_root": "/home/somebody/data", "cache_dir": "/tmp/somebody/.reference"}
    places["python"] = "/home/somebody/there/.gpu-peers/jax/bin/python"
    config = record.config | places | {"command": typed}
    record = record.model_copy(update={"config": config, "command": typed})

    kept = keep_reference.remove_paths(record)
    assert "somebody" in record.model_dump_json()
    assert "somebody" not in kept.model_dump_json()
    assert kept.command == kept.config["command"]
    assert kept.command == "bench -m data_root=data results_dir=results seed=1,2"
    assert kept.config["cache_dir"] == "results/.reference"
    assert kept.config["python"] == ".gpu-peers/jax/bin/python"
    assert kept.trial_id == record.trial_id


def test_a_long_table_is_packed(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    for n_lines in (10, 10_000):
        table.write_text("system,value\n" + "a,1\n" * n_lines)
        name, content = keep_reference.make_small(table)
        if n_lines == 10:
            assert (name, content) == ("table.csv", table.read_bytes())
        else:
            assert name == "table.csv.xz"
            assert lzma.decompress(content) == table.read_bytes()
            assert len(content) < table.stat().st_size / 6


def test_refusals_write_nothing(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "mine.png").write_bytes(b"mine")
    (tmp_path / "README.md").write_bytes(b"mine")
    before = content_of(tmp_path)
    for folder, words in (("", "exists without packed records"), ("new", "keep_reference: ")):
        assert keep_reference.main([str(tmp_path / "none"), str(tmp_path / folder)]) == 1
        read_refusal(capsys, words)
    assert content_of(tmp_path) == before
    assert not (tmp_path / "new").exists()
