"""Print the pods that KubeSpawner makes of `deploy/kubernetes/values.yaml`, and check them and `services.yaml`.

    python tests/pods.py KUBERNETES_VERSION

It runs in an environment of its own, with the JupyterHub of the chart, KubeSpawner and kubernetes-validate. The pods,
one of an instructor and one of a student, are printed as JSON.
"""

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import kubernetes_validate
import kubespawner.spawner
import yaml
from kubernetes_asyncio.client import ApiClient
from traitlets.config import Config

FILES = Path(__file__).resolve().parents[1] / "deploy" / "kubernetes"
VALUES = yaml.safe_load((FILES / "values.yaml").read_text("utf-8"))
SETTINGS = VALUES["hub"]["config"]["KubeSpawner"]


def main():
    version = sys.argv[1]
    overrides = SETTINGS["group_overrides"].values()
    used = {*SETTINGS, *(name for override in overrides for name in override["spawner_override"])}
    if unknown := used - set(kubespawner.KubeSpawner.class_trait_names(config=True)):
        sys.exit(f"KubeSpawner has no setting {', '.join(sorted(unknown))}")
    kubespawner.spawner.load_config = lambda *arguments, **options: None  # there is no cluster
    pods = {role: asyncio.run(pod_of(groups)) for role, groups in (("instructor", ["instructors"]), ("student", []))}
    for manifest in [*pods.values(), *yaml.safe_load_all((FILES / "services.yaml").read_text("utf-8"))]:
        kubernetes_validate.validate(manifest, version, strict=True)
    print(json.dumps(pods))


async def pod_of(groups):
    """Return the pod of a user in these groups, with the settings that the chart passes on."""
    server, config = VALUES["singleuser"], Config()
    settings = {
        "image": f"{server['image']['name']}:{server['image']['tag']}",
        "cmd": server["cmd"],
        "uid": server["uid"],
        "fs_gid": server["fsGid"],
        "allow_privilege_escalation": server["allowPrivilegeEscalation"],
        **{f"mem_{name}": value for name, value in server["memory"].items()},
        **{f"cpu_{name}": value for name, value in server["cpu"].items()},
        **SETTINGS,
    }
    config.KubeSpawner.update(settings)
    user = SimpleNamespace(
        name="ivy", escaped_name="ivy", id=1, url="/user/ivy/", groups=[SimpleNamespace(name=name) for name in groups]
    )
    hub = SimpleNamespace(public_host="", base_url="/hub/", api_url="http://hub:8081/hub/api")
    spawner = kubespawner.KubeSpawner(
        config=config,
        user=user,
        hub=hub,
        api_token="",
        oauth_client_id="",
        oauth_access_scopes=[],
        orm_spawner=SimpleNamespace(name="", server=None),
    )
    await spawner.apply_group_overrides()
    pod = await spawner.get_pod_manifest()
    async with ApiClient() as client:
        return client.sanitize_for_serialization(pod)


if __name__ == "__main__":
    main()
