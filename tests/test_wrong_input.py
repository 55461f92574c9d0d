"""Invalid input: exit code 1, one line with the value and the allowed values, nothing written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from snakemake.cli import parse_config

import dynbatch.harness.planning.nodes
from dynbatch.harness.commands import bench, collect, compare, data, doctor, schedule
from dynbatch.harness.errors import BenchError, ConfigError
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.overrides import MAX_TRIALS, read_points, read_settings
from dynbatch.harness.planning.requests import (
    FOLDERS,
    KEYS,
    PLACES,
    check_keys,
    format_pipeline_command,
)
from dynbatch.harness.terminal.command_line import parse, plan
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.processes import end_python, in_time
from tests.support.refusals import Output, expect_refusal
from tests.support.sandbox import TINY
from tests.support.wrong_words import plain_keys, wrong_overrides

Patch = pytest.MonkeyPatch
SEED, N_OVERRIDES = 14, 210
TOO_LONG = "/x" * 3000
COUNTED = ("model=tree_lstm", "dataset=sst_synthetic", "batch_size=2", "policy=depth")
COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], tuple[str, ...]]] = {
    "bench": (bench.main, ("system=null", *TINY)),
    "bench-schedule": (schedule.main, COUNTED),
    "bench-collect": (collect.main, ()),
    "bench-compare": (compare.main, ()),
    "bench-data": (data.main, ()),
    "bench-doctor": (doctor.main, ()),
}
OTHERS = ("x.csv", "x", "x.JSON", "x.json.gz")
Line = tuple[list[str], list[str]]  # arguments, and texts in the error line

NAMES: list[Line] = [
    (["system=dinet"], ["system=dinet is unknown, did you mean dynet?; choose", "reference"]),
    (["system=pytorch"], ["did you mean torch_autograd or torch_compiled or", "torch_rnn_packed?"]),
    (["model=tree"], ["model=tree is unknown", "tree_fc, tree_gru, tree_lstm"]),
    (["dataset=imagenet"], ["dataset=imagenet is unknown", "sst, sst_synthetic"]),
    (["experiment=headline_tree_lsmt"], ["did you mean headline_tree_lstm?; choose one of"]),
    (["experiment=null"], ["experiment=null is not a name; choose one of: ablation"]),
    (["policy=magic"], ["policy=magic is unknown", "agenda", "depth", "frontier"]),
    ([f"policy={'x' * 300}"], ["xxx is unknown; choose one of"]),  # too long for a file name
    (["policy=depth"], ["policy=depth", "system=null has no policy option"]),
    (["on_invalid_data=ignore"], ["on_invalid_data=ignore is not allowed", "fail, record"]),
    (["order=sorted"], ["order=sorted is not allowed", "shuffled, file, length"]),
    (["mode=test"], ["mode=test is not allowed", "train, infer"]),
    (["device=tpu"], ["device=tpu is not allowed", "cpu, cuda"]),
    (["split=half"], ["split=half is not allowed", "train, dev, test"]),
    (["scale=huge"], ["scale=huge is not allowed; choose one of smoke, medium, paper"]),
    (["scale=paper"], ["scale=paper is of an experiment; set experiment=NAME, or remove scale"]),
    (
        ["experiment=first_look", "scale=smoke", "round=2"],
        ["round is of one trial, an experiment has many; set rounds"],
    ),
    (["system.kind=fast"], ["system.kind=fast is not allowed", "strategy, ablation, framework"]),
    (["system.name=vertex"], ["set system=vertex"]),
    (["model.model=.x"], ["model.model=.x is not allowed: expected a module"]),
    (["system.adapter=''"], ["system.adapter is empty"]),
    (["system.adapter=a b"], ["system.adapter=a b is not allowed: expected a module"]),
    (
        ["dataset.instance_kind=lattice"],
        ["model=tree_fc expects tree instances", "dataset=complete_trees has lattice"],
    ),
]
KEYS_TYPED: list[Line] = [
    (["=5"], ["=5 has no key; choose one of:"]),
    (["~batch_size"], ["~batch_size removes a key that every trial needs"]),
    (["~timing"], ["~timing removes a key"]),
    (["bench_size=1"], ["did you mean batch_size?"]),
    (["+colour=red"], ["colour is not in the configuration", "batch_size"]),
    (["+timing.pause=1"], ["timing.pause is not in the configuration", "n_warmup"]),
    (
        ["backend=stepwise"],
        ["backend is not in the configuration", "set system.options.backend=stepwise"],
    ),
    (["+vocab_modulo=9"], ["set dataset.options.vocab_modulo=9"]),
    (
        ["system.options.color=red"],
        ["color is not in the file of this system", "set +system.options.color=red"],
    ),
    (["model.options.variant=odd"], ["odd is unknown", "fold, cavs"]),
    (["+model.options.color=red"], ["option model.options.color for model tree_fc", "variant"]),
    (["learning.file_sha256=ab"], ["learning.file_sha256=ab is computed", "remove it"]),
    (["hydra.run.dir=x"], ["bench runs them itself; remove it"]),
    (["batch_size"], ["invalid argument 'batch_size': expected KEY=VALUE, such as batch_size=8"]),
    (["--no-such-flag"], ["bench --help"]),
    (["--resolve"], ["--resolve flag"]),
]
VALUES: list[Line] = [
    (["batch_size=0"], ["batch_size=0", "at least 1"]),
    (["batch_size='8'"], ["batch_size='8' is not allowed: expected a whole number"]),
    (["batch_size=???"], ["batch_size=??? is not allowed: expected a whole number"]),
    (["batch_size=[1"], ["invalid argument 'batch_size=[1'"]),
    ([f"batch_size={10**30}"], ["and at most 1048576"]),
    (["hidden_size=0"], ["hidden_size=0", "at least 1"]),
    (["threads=0"], ["threads=0", "at least 1"]),
    (["threads=100000"], ["threads=100000", "CPUs"]),
    (["rounds=0"], ["rounds=0", "at least 1"]),
    (["rounds=100000000000"], ["rounds=100000000000 is not", "expected a value of at least 1"]),
    (["rounds=1e11"], ["is not allowed: expected a whole number or null"]),
    (["round=-1"], ["round=-1", "at least 0"]),
    ([f"seed={2**64}"], ["and at most 4294967295"]),
    (["cpu=60000"], ["cpu=60000 is not allowed: expected 1 of the usable CPUs"]),
    (["timing.last=half"], ["timing.last=half is not allowed"]),
    (["timing.n_mini_batches=0"], ["n_mini_batches=0", "at least 1"]),
    (["limits.time_s=0"], ["limits.time_s=0", "above 0"]),
    (["limits.time_s=inf"], ["at most 31536000.0"]),
    (["learning_rate=nan"], ["learning_rate=nan is not allowed"]),
    (["learning_rate=0"], ["learning_rate=0", "above 0"]),
    (["force=perhaps"], ["force=perhaps is not allowed: expected true or false"]),
    (["dataset.options.n_leaves=3"], ["n_leaves", "3"]),
    (["dataset=sst", "dataset.options.vocab_modulo=true"], ["vocab_modulo=true is not allowed"]),
    (
        ["dataset=sst", "dataset.options.sha256=5"],
        ["sha256=5 is not allowed: expected a mapping of names"],
    ),
    (["model=var_lstm", "dataset=ptb", "model.options.layers='2'"], ["expected a whole number"]),
    (["model=var_lstm", "dataset=ptb", f"model.options.layers={10**9}"], ["and at most 64"]),
    (["results_dir="], ["results_dir is empty"]),
    (["results_dir=1e3"], ["is not allowed: expected a string"]),
    ([f"results_dir='/{'é' * 128}'"], ["names of at most 255 bytes"]),
    ([f"out={TOO_LONG}.json"], ["a path of at most 3500 bytes"]),
    (["out=empty"], ["is a directory"]),
    (["out=file/below/r0.json"], ["cannot be written", "choose another "]),
    (["results_dir=file/below"], ["cannot be written", "choose another "]),
    *(
        ([f"out={name}"], [f"out={name}, but a record is JSON; choose a name that ends in .json"])
        for name in OTHERS
    ),
    (["system=~"], ["invalid argument 'system=~'"]),
    (
        ["system=vertex,"],
        ["invalid argument 'system=vertex,': expected a value after the comma; remove"],
    ),
    (["data_root='~no_one/x'"], ["data_root=~no_one/x: the user of ~ is unknown; write the whole"]),
    (["dataset=trees", "dataset.path='~no_one'"], ["dataset.path=~no_one: the user of ~"]),
]
SWEEPS: list[Line] = [
    (["system=vertex,dynet"], ["has several values; set -m first"]),
    (["-m", "cpu=0", "threads=1,2"], ["threads=1,2, but cpu sets the CPUs of all trials"]),
    (["-m", "cpu=0,1"], ["cpu=0,1, but cpu sets the CPUs of all trials"]),
    (["-m", "batch_size=2,0"], ["batch_size=0", "at least 1"]),
    (["-m", "batch_size=2,,4"], ["invalid argument 'batch_size=2,,4'"]),
    (["-m", "batch_size=range(1,1e9)"], [f"trials: expected at most {MAX_TRIALS}"]),
    (["-m", "batch_size=range(1,200)", "hidden_size=range(1,200)"], ["the sweep has 39601 trials"]),
    (["-m", "batch_size=range(0)"], ["batch_size=range(0) has no value"]),
    (["-m", "model=glob(zz*)"], ["model=glob(zz*) has no value"]),
]
COUNTS: list[Line] = [
    (["=5"], ["=5 has no key"]),
    ([""], ["invalid argument '': expected KEY=VALUE"]),
    (["granularty=vertex"], ["granularty is not in the configuration, did you mean granularity?"]),
    (["results_dir=x"], ["counts have no results_dir; remove it"]),
    (["experiment=null"], ["counts have no experiment; remove it"]),
    (["system=vertex"], ["counts have no system; remove it"]),
    (["rounds=1e11"], ["counts have no rounds"]),
    (["model=null"], ["model=null is not a name; choose one of"]),
    (["offset=1.5"], ["offset=1.5 is not allowed"]),
    ([f"offset={10**30}"], ["with at most 9 digits"]),
    (["n_following=999999999"], ["n_following=999999999 is not allowed"]),
    (["granularity="], ["granularity is empty"]),
    (["out="], ["out is empty"]),
    (["records="], ["records is empty"]),
    (["save_policy="], ["save_policy is empty"]),
    ([f"records={TOO_LONG}"], ["at most 3500 bytes"]),
    (["learning.file="], ["learning.file is empty"]),
    (["learning.file=pipe", "policy=fsm_sort"], ["it is a FIFO, not a file"]),
    (["learning.file=empty", "policy=fsm_sort"], ["it is a directory"]),
    (["learning.file=/dev/full", "policy=fsm_sort"], ["it is a device"]),
    (["~batch_size=1"], ["removes a key that every trial needs"]),
    (["policy=no_such"], ["policy=no_such is unknown; choose one of agenda, agenda_dynamic"]),
    (["policy=agenda,"], ["policy= is unknown; choose one of agenda"]),
    (["offset=10000000"], ["need 10000002 instances, but sst_synthetic (train) has"]),
    (["granularity=no_such"], ["granularity=no_such is unknown; choose one of vertex, operator"]),
    (["no_such"], ["expected KEY=VALUE"]),
    (["--no-such"], ["see `bench-schedule --help`"]),
    (["--draw=graph.gif"], ["choose one of .pdf, .png, .svg"]),
    (["batch_size=100", "--draw=graph.png"], ["cannot be drawn readably"]),
    (["--draw=no_such/graph.png"], ["cannot be written"]),
    (["policy=agenda", "save_policy=x.json"], ["save_policy needs exactly one learned policy"]),
    (["policy=fsm_sort,fsm_max", "save_policy=x.json"], ["policy=fsm_sort,fsm_max has 2"]),
    (["policy=agenda", "--draw-policy=x.svg"], ["--draw-policy needs exactly one learned"]),
    (["policy=fsm_sort", "--draw-policy=x.gif"], ["--draw-policy x.gif: unknown format"]),
    (["policy=fsm_sort", "learning.file=no_such.json"], ["learning.file=no_such.json cannot"]),
    (["policy=fsm_sort", "learning.fallback=first"], ["learning.fallback=first is not allowed"]),
    (["policy=fsm_sort", "learn_offset=-1"], ["learn_offset=-1 is not allowed"]),
    (["policy=fsm_sort", "--show-policy", "--json"], ["exclude each other; remove one"]),
    (["policy=agenda,depth", "--show-policy"], ["--show-policy needs a learned policy"]),
    (["out=rows.txt"], ["counts is JSON or CSV; choose a name that ends in .json or .csv"]),
]
COLLECTED: list[Line] = [
    ([], ["results/raw cannot be read (No such file or directory); choose a record"]),
    (["--nope"], ["see `bench-collect --help`"]),
    ([""], ["PLACE is empty"]),
    (["--out", ""], ["--out is empty"]),
    (["--pack", ""], ["--pack is empty"]),
    (["empty", "--unpack", ""], ["--unpack is empty"]),
    (["--out"], ["expected one argument"]),
    ([TOO_LONG], ["at most 3500 bytes"]),
    (["empty", "--out", TOO_LONG], ["at most 3500 bytes"]),
    (["a\0b"], ["has a NUL character"]),
    (["a\udcfc"], ["PLACE='a\\udcfc' is not allowed: expected UTF-8; rename the file"]),
    (["pipe"], ["pipe cannot be read (it is a FIFO, not a file)"]),
    (["/dev/zero"], ["/dev/zero cannot be read"]),
]
DESCRIBED: list[Line] = [
    (["list", "--data-root", ""], ["--data-root is empty"]),
    (["list", "--data-root", "file"], ["--data-root=file is not a directory; choose another"]),
    (["list", "--data-root", "~no_one/x"], ["--data-root=~no_one/x: the user of ~ is unknown"]),
    (["describe"], ["required: name; see"]),
    (["describe", ""], ["name is empty"]),
    (["describe", "x" * 300], ["names of at most 255 bytes"]),
    (["describe", "sst_synthetic", "+dataset.options.color=1"], ["color", "valid options"]),
]
COMPARED: list[Line] = [
    (["", "empty"], ["BEFORE is empty"]),
    (["empty", ""], ["AFTER is empty"]),
    ([TOO_LONG, "empty"], ["BEFORE=/x/x", "at most 3500 bytes"]),
]
LINES = [
    *(("bench", *line) for line in (*NAMES, *KEYS_TYPED, *VALUES, *SWEEPS)),
    *(("bench-schedule", *line) for line in COUNTS),
    *(("bench-collect", *line) for line in COLLECTED),
    *(("bench-data", *line) for line in DESCRIBED),
    *(("bench-compare", *line) for line in COMPARED),
    *(("bench-doctor", [text], ["see `bench-doctor --help`"]) for text in ("--nope", "", "x")),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Return the working directory of the command."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("in the way")
    return tmp_path


def refusal(command: str, arguments: Sequence[str], here: Path, capsys: Output) -> str:
    """Run a command that must fail, and return its error line."""
    main, usual = COMMANDS[command]
    chosen = {text.partition("=")[0] for text in arguments}
    groups = {text: {text.partition("=")[0], text.partition(".")[0]} for text in usual}
    others = [text for text in usual if not chosen & groups[text]]
    assert main([*others, *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = (line for line in printed.err.splitlines() if not line.startswith("[1/1]"))
    assert line.startswith(f"{command}: ")
    written = {path for path in here.rglob("*") if "results" not in path.parts}
    assert written == {here / "pipe", here / "empty", here / "file"}
    assert not [*here.rglob("*.json"), *here.rglob("*.tmp")]
    return line


@pytest.mark.parametrize(("command", "arguments", "words"), LINES)
def test_a_wrong_command_line(
    command: str, arguments: list[str], words: list[str], here: Path, capsys: Output
) -> None:
    line = refusal(command, arguments, here, capsys)
    assert [text for text in words if text not in line] == []


def test_hydras_own_switch_changes_nothing(here: Path, capsys: Output, monkeypatch: Patch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    refusal("bench", ["system=dinet"], here, capsys)


def test_a_variable_of_the_shell_is_refused(here: Path, capsys: Output, monkeypatch: Patch) -> None:
    monkeypatch.setenv("BENCH_DATA", "~no_one")
    line = refusal("bench", ["dataset=sst"], here, capsys)
    assert "BENCH_DATA=~no_one: the user of ~ is unknown; write the whole path" in line


def test_cuda_without_a_device_is_refused(here: Path, capsys: Output, monkeypatch: Patch) -> None:
    monkeypatch.setattr(dynbatch.harness.planning.nodes, "has_cuda_device", lambda: False)
    line = refusal("bench", ["device=cuda"], here, capsys)
    assert line == "bench: device=cuda, but no NVIDIA device is visible; set device=cpu"


def test_the_console_sees_the_same() -> None:
    done = end_python("-m", bench.__name__, "system=dinet")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("bench: system=dinet is unknown, did you mean dynet?; choose one")
    assert done.stderr.count("\n") == 1


def test_drawn_overrides_are_reproducible_and_cover_every_key() -> None:
    assert wrong_overrides(1, 50) == wrong_overrides(1, 50) != wrong_overrides(2, 50)
    drawn = {text.partition("=")[0] for text in wrong_overrides(0, 20_000)}
    assert set(plain_keys()) <= drawn
    assert {"system", "model", "dataset", "experiment"} <= drawn


def test_drawn_command_lines_are_refused_in_one_line(tmp_path: Path) -> None:
    accepted, long = [], []
    results = f"results_dir={tmp_path / 'results'}"
    for text in dict.fromkeys(wrong_overrides(SEED, N_OVERRIDES)):
        try:
            plan(parse(["system=null", results, text]), [text])
        except ConfigError as error:
            long += [text] if "\n" in str(error) else []
        else:
            accepted.append(text)
    assert accepted == long == []
    assert not (tmp_path / "results").exists()


ODD_VALUES = (
    *("x" * 5000, "a b", "'a\\nb'", "ünï", "-", "..", "a/b/c", "$HOME", "'a=b'", "null"),
    *("0", "1e300", str(10**30), "true", "1e-320", "inf", "0x", "1 2", "${nothing}", "range(1,3)"),
)


@settings(deadline=None)
@given(st.sampled_from(sorted(plain_keys())), st.sampled_from(ODD_VALUES))
def test_an_odd_value_is_taken_or_refused_in_one_line(key: str, value: str) -> None:
    refusal = ""
    with TemporaryDirectory() as folder, chdir(folder), in_time(20):
        try:
            plan(parse(["system=null", f"{key}={value}"]), [])
        except BenchError as error:
            refusal = str(error)
    assert "\n" not in refusal


def test_right_ones_are_not() -> None:
    right = ["force=true", "batch_size=8", "learning_rate=1", "timing.min_seconds=0", "rounds=null"]
    right += ["results_dir=2026", "seed=0", "policy=null", "mode=infer", "learning_rate=1e-3"]
    for text in (*right, "batch_size=${hidden_size}"):
        Composer().compose_config(read_settings(["system=null", text]))
    assert len(read_points(["system=vertex,dynet"], may_sweep=True)) == 2


def test_only_options_are_added_with_a_plus() -> None:
    """As in Hydra, `+` and `++` before another key change nothing."""
    assert read_settings(["+system=null", "++batch_size=8"]) == {"system": "null", "batch_size": 8}
    added = {"+model.options.a": 1, "+system.options": {"b": 2}}
    assert read_settings(["++model.options.a=1", "+system.options={b:2}"]) == added


@pytest.mark.parametrize(
    "settings", [{"force": "off"}, {"batch_size": "8"}, {"experiment": None}, {"learning.file": ""}]
)
def test_grids_are_held_to_the_same(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"not allowed|not a name|is empty"):
        Composer().compose_config({"system": "null"} | settings)


MISREAD = ("{x}", "a{b", "}", "<logs>", "a\nb", "a\tb", "\x7f")


def test_the_pipeline_takes_every_key_that_it_knows() -> None:
    given = {"scale": "smoke", "device": "cpu", "threads": 2, "conf_dir": str(CONF_DIR)}
    given |= {"data_root": "data", "results_dir": "here"}
    check_keys(given | {"budget": "45m"}, {})
    check_keys(given | {"records": "elsewhere"}, {"BENCH_DATA": "{x}"})
    check_keys({"nodes": {"name": "h200", "n_cpus": 16, "memory_gib": 120}}, {})
    names = ("a b", "it's", 'say "so"', "$(touch x)", "`x`;&|", "-n", "a: b", "a #b", "*[a]")
    for name in (*names, "x" * 255):
        check_keys({"results_dir": name, "data_root": name, "records": name}, {})
    check_keys({"records": __file__}, {})
    assert set(KEYS) == {*given, "budget", "records", "nodes"}


@example("True")
@example("7")
@example("-n")
@example("/a: b #c")
@example("it's 'so'")
@given(st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), min_size=1))
def test_snakemake_reads_the_path_that_a_printed_command_names(path: str) -> None:
    words = shlex.split(format_pipeline_command("all", {"results_dir": path}))
    read = parse_config(words[words.index("--config") + 1 :])["results_dir"]
    assert os.path.normpath(read) == os.path.normpath(path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"scal": 1}, "--config scal is unknown, did you mean scale?; choose one of"),
        ({"quirk": 1}, f"is unknown; choose one of: {', '.join(KEYS)}"),
        ({"records": "x", "budget": "45m"}, "measures nothing; remove budget"),
        ({"scale": None}, "--config scale= is empty; set a value, or remove scale"),
        ({"scale": ""}, "--config scale= is empty"),
        ({"scale": "huge"}, "choose one of smoke, medium, paper"),
        ({"device": "gpu"}, "choose one of cpu, cuda"),
        ({"threads": 0}, "--config threads=0 is not allowed: expected a value of at least 1"),
        ({"threads": 1.5}, "threads=1.5 is not allowed: expected a whole number"),
        ({"threads": True}, "threads=true is not allowed: expected a whole number"),
        ({"results_dir": 2026}, "results_dir=2026 is not read as text; set results_dir=./"),
        ({"data_root": "x" * 300}, "names of at most 255 bytes"),
        ({"results_dir": {"a": "b"}}, "is not read as text"),
        *(({key: __file__}, "is not a directory; choose") for key in FOLDERS),
        *(({key: f"some/{x}"}, "; choose another path") for key in PLACES for x in MISREAD),
        ({"BENCH_DATA": "{x}"}, "data_root='{x}' has '{', which Snakemake does not allow"),
        ({"conf_dir": "/nowhere"}, "conf_dir=/nowhere has no bench.yaml; choose a copy of"),
        ({"budget": 45}, "budget=45 is not allowed: expected a duration such as 45m"),
        ({"budget": "9" * 400 + "h"}, "at most 1 year"),
    ],
)
def test_a_wrong_key_of_the_pipeline(config: dict[str, Any], words: str) -> None:
    environment = {"BENCH_DATA": str(config.get("BENCH_DATA", ""))}
    given = {key: value for key, value in config.items() if key != "BENCH_DATA"}
    with expect_refusal(words):
        check_keys(given, environment)
