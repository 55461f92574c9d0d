"""Kubernetes jobs: rendered from the profile's template, and validated by the API's client."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from dynbatch.harness.commands import kubernetes as command
from dynbatch.harness.commands.kubernetes import NODE, build_job, determine_ending
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.values.paths import ROOT

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
PROFILE = ROOT / "profiles" / "kubernetes"
TEMPLATE = PROFILE / "job.yaml"


def rendered() -> dict[str, Any]:
    return build_job(
        TEMPLATE, "#!/bin/sh\ncd /bench && true\n", Path("/bench"), {"BENCH_DATA": "/d"}
    )


def test_a_job_runs_the_script_where_the_head_works() -> None:
    container = rendered()["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["/bin/sh", "-c", "#!/bin/sh\ncd /bench && true\n"]
    assert container["workingDir"] == "/bench"
    assert {"name": "BENCH_DATA", "value": "/d"} in container["env"]
    assert NODE in [one["name"] for one in container["env"]]
    names = {rendered()["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3


def test_two_of_our_pods_never_share_a_node() -> None:
    """Two pods could not share a lock, because each has its own /dev/shm."""
    job = rendered()
    labels = job["spec"]["template"]["metadata"]["labels"]
    spread = job["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    (rule,) = spread["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert rule["labelSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("kind", ["V1Job", "V1Pod"])
def test_rendered_objects_conform_to_the_api_schema(kind: str) -> None:
    """The client is generated from the API's schema; it reads and writes every field."""
    client = pytest.importorskip("kubernetes.client")
    content = rendered() if kind == "V1Job" else yaml.safe_load((PROFILE / "head.yaml").read_text())
    api = client.ApiClient()
    read = api.deserialize(SimpleNamespace(data=json.dumps(content)), kind)
    assert api.sanitize_for_serialization(read) == content


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ({}, "running"),
        ({"active": 1}, "running"),
        ({"succeeded": 1}, "success"),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, "success"),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, "failed"),
        ({"failed": 1}, "failed"),
    ],
)
def test_the_end_of_a_job_is_one_of_three_words(status: dict[str, Any], ending: str) -> None:
    assert determine_ending({"status": status}) == ending


def test_template_of_another_kind_is_rejected(tmp_path: Path) -> None:
    place = tmp_path / "job.yaml"
    place.write_text("kind: Pod\nmetadata: {}\nspec: {}\n")
    with pytest.raises(ConfigError, match="is not a Job with a container"):
        build_job(place, "", tmp_path, {})


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Return the directory of a fake kubectl that stores its input and answers from files."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "kubectl"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/words\n'
        f"test $1 = create && cat > {tmp_path}/created && exit\n"
        f"test $1 = delete && exit\n"
        f"test -e {tmp_path}/said && exec cat {tmp_path}/said\n"
        'echo "Error from server (NotFound): jobs not found" >&2; exit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return tmp_path


def test_a_job_is_submitted_looked_after_and_cancelled(kubectl: Path, capsys: Output) -> None:
    script = kubectl / "script.sh"
    script.write_text("true\n")
    assert command.main(["submit", str(TEMPLATE), str(script)]) == 0
    name = capsys.readouterr().out.strip()
    assert json.loads((kubectl / "created").read_text())["metadata"]["name"] == name
    assert command.main(["status", name]) == 0
    assert capsys.readouterr().out == "failed\n", "somebody deleted it"
    (kubectl / "said").write_text(json.dumps({"status": {"active": 1}}))
    assert command.main(["status", name]) == 0
    assert capsys.readouterr().out == "running\n"
    assert command.main(["cancel", name, "another"]) == 0
    assert f"{name} another" in (kubectl / "words").read_text().splitlines()[-1]


def test_missing_kubectl_is_reported(monkeypatch: Patch, tmp_path: Path, capsys: Output) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command.main(["status", "x"]) == 1
    assert "kubectl is not installed" in capsys.readouterr().err
