"""The files of examples/cluster: as far as they can be checked without a cluster."""

import json
import re
from pathlib import Path

import pytest

import tidelog as tl
from tidelog.cli import train
from tidelog.cli.flags import parse
from tidelog.cli.sweep import flags_of

FILES = Path(__file__).parents[2] / "examples" / "cluster"
IQL = "sweep iql --data /shared/visits.tidelog --grid temperature=1,3,10 --seeds 5 --out /shared/sweeps/a"
# fields of ray.io/v1, of KubeRay's reference
JOB = {"entrypoint", "shutdownAfterJobFinishes", "rayClusterSpec"}
CLUSTER = {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}


def test_the_script_for_several_processes_has_flags_of_train():
    script = (FILES / "slurm_processes.sh").read_text()
    words = (
        re.search(r"words=\(train iql (.*)\)", script)[1].replace('"', "").replace("$out", "/shared/runs/iql").split()
    )
    options = parse(train.flags_of(tl.IQL), [*words, "--coordinator", "auto"], "train iql")
    assert (options.coordinator, options.batch_size, options.overwrite) == ("auto", 8192, True)


def test_the_script_for_sweeps_has_the_command():
    script = FILES / "slurm.sh"
    words = (
        re.search(r"words=\((sweep .*)\)", script.read_text())[1].replace('"', "").replace("$out", "/shared/sweeps/a")
    )
    assert words == IQL
    assert re.findall(r"--[a-z-]+", script.read_text().split("symmetric-run")[1].split(" -- ")[0]) == [
        "--address", "--min-nodes", "--num-cpus"
    ]  # fmt: skip


def test_the_manifest_for_kubernetes_has_the_fields_of_a_rayjob():
    yaml = pytest.importorskip("yaml")
    manifest = yaml.safe_load((FILES / "kubernetes.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayJob")
    spec = manifest["spec"]
    assert spec["entrypoint"] == f"tidelog {IQL} --on ray"
    cluster = spec["rayClusterSpec"]
    assert set(spec) == JOB
    assert set(cluster) == CLUSTER
    assert cluster["authOptions"] == {"mode": "token"}
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert set(group) <= GROUP
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        (container,) = group["template"]["spec"]["containers"]
        volumes = {one["name"] for one in group["template"]["spec"]["volumes"]}
        assert {one["name"] for one in container["volumeMounts"]} == volumes
        assert container["resources"]["requests"] == container["resources"]["limits"]


def test_the_commands_of_the_files_are_commands():
    options = parse(flags_of(tl.IQL), [*IQL.split()[1:], "--on", "ray"], "sweep")
    assert options.on == "ray"
    assert options.out == "/shared/sweeps/a"


@pytest.mark.full
def test_the_file_for_machines_follows_the_schema_of_ray():
    yaml, jsonschema = pytest.importorskip("yaml"), pytest.importorskip("jsonschema")
    autoscaler = pytest.importorskip("ray.autoscaler", reason="Ray is not installed: pip install 'tidelog[ray]'")
    schema = json.loads((Path(autoscaler.__file__).parent / "ray-schema.json").read_text())
    content = yaml.safe_load((FILES / "machines.yaml").read_text())
    jsonschema.validate(content, schema)
    starts = [one for key in ("head", "worker") for one in content[f"{key}_start_ray_commands"] if "ray start" in one]
    assert len(starts) == 2
    assert all(one.startswith("RAY_AUTH_MODE=token ") for one in starts)
