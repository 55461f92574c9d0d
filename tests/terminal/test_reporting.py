"""Output of commands: help, lines before, during and after trials, and the status of a run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from dynbatch.harness.commands import draw
from dynbatch.harness.commands.bench import compare, describe_drawing, main
from dynbatch.harness.contracts.policy import list_policy_names
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.config import BenchConfig
from dynbatch.harness.planning.job_specs import FILE, RunPlan
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.records.record import build_trial, write_record
from dynbatch.harness.terminal.command_line import describe_keys, describe_plan, parse, plan
from dynbatch.harness.terminal.reporting import (
    Reporter,
    format_summary,
    format_trial,
    format_trials,
)
from dynbatch.harness.terminal.status import (
    AtWork,
    Notice,
    forget_all,
    format_status,
    read_current_work,
    tell_status,
)
from dynbatch.harness.values import paths
from dynbatch.harness.values.checked import find_key_types
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.measured import MakeSpec, measure_alone
from tests.support.pipelines import SPEEDUPS, SYSTEMS, build_experiment, write_conf
from tests.support.records import MakeRecord, plain_record

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_describes_every_key_and_names_every_choice(flag: str, capsys: Output) -> None:
    assert main([flag]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith(f"\n{describe_keys(CONF_DIR / 'bench.yaml')}\n")
    assert "mode: train # train: forward" in printed
    words = " ".join(printed.split())
    assert f"policy: {', '.join(list_policy_names())} system" in words
    for group in ("dataset", "experiment", "model"):
        names = sorted(path.stem for path in (CONF_DIR / group).glob("*.yaml"))
        assert f"{group}: {', '.join(names)} " in words
    for system in read_systems(CONF_DIR):
        assert f"{system.name} ({system.label})" in words


def test_no_key_is_left_out() -> None:
    lines = describe_keys(CONF_DIR / "bench.yaml").splitlines()[1:]
    message = {line.strip().partition(":")[0] for line in lines if line}
    of_groups = ("system", "model", "dataset", "experiment")
    known = {
        key.rpartition(".")[2]
        for key in find_key_types(BenchConfig)
        if not key.startswith(of_groups)
    }
    assert known - message == {"file_sha256"}, "which nobody types"
    assert message <= known


def words_of(*typed: str) -> list[str]:
    jobs = parse(typed)
    return list(describe_plan(jobs, plan(jobs, typed)))


def test_only_fallback_datasets_of_experiments_are_reported(tmp_path: Path) -> None:
    places = [f"results_dir={tmp_path}", f"data_root={tmp_path}"]
    small = ["scale=smoke", "device=cpu", *places]
    _, line = words_of("experiment=headline_parser", *small)
    assert line == (
        f"ud_ewt is not in {tmp_path}: measuring fallback ud_ewt_synthetic;"
        " to download it, run `bench-data fetch ud_ewt`"
    )
    named = "dataset=sst_synthetic"
    assert len(words_of("experiment=headline_tree_lstm", named, *small)) == 1
    assert words_of(named, *places) == []


def test_outdated_records_are_planned_to_be_measured(tmp_path: Path) -> None:
    typed = ["experiment=first_look", "scale=smoke", "device=cpu", f"results_dir={tmp_path}"]
    (expected,) = words_of(*typed)
    for measurement in plan(parse(typed), typed):
        write_record(measurement.path, plain_record())  # of other code
    (line,) = words_of(*typed)
    assert line.partition(", about")[0] == expected.partition(", about")[0]


def test_an_experiment_names_the_command_that_draws_it() -> None:
    jobs = parse(["experiment=first_look", "scale=smoke", "device=cpu", "results_dir=some where"])
    (line,) = describe_drawing(jobs)
    config = "scale=smoke device=cpu 'results_dir=some where'"
    assert line == f"draw with: snakemake draw_first_look --config {config}"

    (line,) = describe_drawing(parse(["experiment=first_look", "results_dir=2026"]))
    assert line.endswith("--config results_dir=./2026"), "Snakemake reads 2026 as a number"

    (line,) = describe_drawing(parse(["experiment=first_look", "rounds=2"]))
    assert line == "draw with: snakemake draw_first_look", "the pipeline does not take rounds"
    assert list(describe_drawing(parse(["model=tree_lstm"]))) == []

    sweep = parse(["-m", "experiment=first_look", "system=vertex,dynet"])
    assert len(list(describe_drawing(sweep))) == 1 < len(sweep)


def test_an_own_experiment_is_compared_and_drawn_with_its_configuration(tmp_path: Path) -> None:
    write_conf(tmp_path, own=build_experiment(SPEEDUPS))
    jobs = parse([f"--config-path={tmp_path}/conf", "experiment=own", "scale=smoke"])
    records = [plain_record(system=system) for system in SYSTEMS]
    *_, line = compare(records, jobs)
    assert line == f"draw with: snakemake draw_own --config scale=smoke conf_dir={tmp_path}/conf"


def test_an_installed_package_draws_without_a_snakefile(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    jobs = parse(["experiment=first_look", "scale=smoke", "results_dir=some where"])
    (line,) = describe_drawing(jobs)
    options = "--scale=smoke '--results-dir=some where'"
    assert line == f"draw with: python -m dynbatch.harness.commands.draw first_look {options}"
    given = draw.parse(["first_look", "--scale=smoke", "--results-dir=some where"])
    assert (given.names, given.results_dir) == (["first_look"], "some where")


def test_summary_shows_requested_options_not_in_effect(
    make_spec: MakeSpec, make_record: MakeRecord, tmp_path: Path
) -> None:
    asked = {"fusion": True, "hoisting": True, "backend": "auto"}
    spec = make_spec(system_options=asked)
    found = {"fusion": "false", "hoisting": "true", "backend": "stepwise", "calls": "one a step"}
    text = format_summary(make_record(spec, effective_options=found), tmp_path / "r0.json")
    assert "ran with backend stepwise, calls one a step, fusion=false" in text
    assert "fusion=false instead of true" in text
    assert "hoisting" not in text
    honored = {"build": "source", "limit": "null", "name": "Some"}
    spec = make_spec(system_options={"build": "auto", "limit": None, "name": "Some"})
    text = format_summary(make_record(spec, effective_options=honored), tmp_path / "r0.json")
    assert "instead of" not in text
    assert "ran with" not in format_summary(make_record(make_spec()), tmp_path / "r0.json")


def test_a_terminal_gets_a_bar_and_a_log_gets_lines(capsys: Output) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with Reporter(2, console) as reporter:
        for words in ("first", "second"):
            reporter.show_trial(words)
            reporter.write_note(f"note on {words} [now]")
            reporter.write_result(f"{words} done [ok]")
    assert "[1/2] first done [ok]" in screen.getvalue()
    assert "  note on second [now]" in screen.getvalue()
    assert capsys.readouterr() == ("", "")
    with Reporter(1, Console(file=screen, force_terminal=False)) as reporter:
        reporter.show_trial("only")
        reporter.write_note("note")
        reporter.write_result("only done")
    assert capsys.readouterr().err == "  note\n[1/1] only done\n"


def test_nothing_is_drawn_while_a_worker_runs(make_spec: MakeSpec, tmp_path: Path) -> None:
    screen = io.StringIO()
    with Reporter(2, Console(file=screen, force_terminal=True, width=100)) as reporter:
        reporter.show_trial("a trial")
        before = screen.getvalue()
        measure_alone(make_spec(), tmp_path / "r0.json", tmp_path / "r0.log")
        assert screen.getvalue() == before
        reporter.write_result("a trial")
        assert screen.getvalue() != before


def test_equally_named_trials_get_distinct_labels(make_spec: MakeSpec) -> None:
    specs = [
        make_spec(order="length", dataset_options={"vocab_modulo": 0, "depth": 3}),
        make_spec(order="length", dataset_options={"vocab_modulo": 256, "depth": 3}),
        make_spec(order="shuffled", dataset_options={"vocab_modulo": 0, "depth": 3}),
        make_spec(batch_size=7, dataset_options={"vocab_modulo": 7}),
    ]
    same, other = format_trial(build_trial(specs[0])), format_trial(build_trial(specs[3]))
    first, second, third, alone = format_trials(specs)
    for label, modulo in ((first, 0), (second, 256)):
        settings = sorted(label.removeprefix(same).split())
        assert settings == [f"dataset.options.vocab_modulo={modulo}", "order=length"]
    assert "order=shuffled" in third.split()
    assert alone == other


def test_job_publishes_current_work_until_it_ends(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "bench1")
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    notice = Notice(tmp_path)
    notice.show_work("waits", 1.0)
    notice.show_work("tree_lstm", 60.0)
    (found,) = read_current_work(tmp_path)
    assert (found.node, found.job, found.what, found.at_most_s) == ("bench1", "12", "tree_lstm", 60)
    notice.take_down()
    assert not list(read_current_work(tmp_path))
    notice.show_work("again", 1.0)
    forget_all(tmp_path)
    assert not list(read_current_work(tmp_path))


def test_the_status_of_a_run_is_a_line_for_each_job(tmp_path: Path) -> None:
    done, left = tmp_path / "done", tmp_path / "left"
    done.touch()
    plan = RunPlan(started=1000.0, until=None, seconds={str(done): 10.0, str(left): 10.0})
    working = [
        AtWork("bench1", "12", "tree_lstm", since=1000.0, at_most_s=60.0),
        AtWork("bench2", "13", "tree_gru", since=900.0, at_most_s=60.0),
    ]
    first, *others = format_status(plan, working, now=1030.0)
    assert first.startswith("1 of 2 steps of the run started ")
    assert others == [
        "bench1  job 12  tree_lstm, for 30 s",
        "bench2  job 13  tree_gru, for 2 min: its node may be dead",
    ]
    assert list(format_status(plan, [], now=1030.0))[1].startswith("no job is active on a node")


def test_a_folder_without_a_run_is_one_line(tmp_path: Path, capsys: Output) -> None:
    with pytest.raises(ConfigError, match="no pipeline run found in"):
        tell_status([tmp_path])
    RunPlan(1000.0, None, {}).write(tmp_path / FILE)
    tell_status([tmp_path])
    assert "0 of 0 steps" in capsys.readouterr().out
