"""Text of `bench --help` in addition to Hydra's list of keys."""

from __future__ import annotations

import pytest

from dynbatch.harness.commands.bench import main
from dynbatch.harness.contracts.policy import list_policy_names
from dynbatch.harness.planning.config import BenchConfig
from dynbatch.harness.terminal.command_line import describe_keys
from dynbatch.harness.values.checked import find_key_types
from dynbatch.harness.values.paths import CONF_DIR


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_describes_every_key_and_lists_policies(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([flag]) == 0
    printed = capsys.readouterr().out
    assert f"\n{describe_keys(CONF_DIR / 'bench.yaml')}\n" in printed
    assert printed.splitlines()[-1] == f"Policies: auto, {', '.join(list_policy_names())}"
    assert "order: shuffled # of instances; length:" in printed
    assert "mode: train # train: forward" in printed


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
