#!/usr/bin/env python3
"""The pods of deploy/kubernetes as containers of a Docker engine, without Kubernetes: commands, users, read-only roots,
volumes, names and environment are the manifests', and what controllers add is added here. They train to the end.

    python3 tests/deploy/pods_test.py     # after compose_test.py, or a build of the images cairn-ps and cairn-worker

Skipped, with a message, if there is no Docker. Needs PyYAML.
"""

import json
import pathlib
import shutil
import sys
import tempfile
import time
import unittest
import uuid

import yaml
from compose_test import SKIPPED, SOURCE, TIME_LIMIT, answers, run

KUBERNETES = SOURCE / "deploy/kubernetes"


def setUpModule():
    if not answers("docker", "info"):
        raise unittest.SkipTest("no Docker engine answers here")
    for image in ("cairn-ps", "cairn-worker"):
        if not answers("docker", "image", "inspect", image):
            raise unittest.SkipTest(f"there is no image {image}")


class PodsTest(unittest.TestCase):

    def setUp(self):
        self.mark = f"cairn{uuid.uuid4().hex[:8]}"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-pods-"))
        self.directory.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.directory)
        run("docker", "network", "create", self.mark)
        self.volumes = set()
        self.containers = {}
        self.addCleanup(self.clean_up)

    def clean_up(self):
        for container in self.containers.values():
            run("docker", "rm", "-f", container, check=False)
        for volume in self.volumes:
            run("docker", "volume", "rm", "-f", volume, check=False)
        run("docker", "network", "rm", self.mark, check=False)

    def load(self, folder):
        with open(KUBERNETES / folder / "cairn.yaml", encoding="utf-8") as file:
            self.objects = [document for document in yaml.safe_load_all(file) if document]

    def mount(self, pod, volume):
        """The replacement of a pod's volume: a local folder, or a volume of the engine."""
        maps = [volume[kind] for kind in ("configMap",) if kind in volume]
        maps += [source["configMap"] for source in volume.get("projected", {}).get("sources", [])]
        if not maps:
            claim = volume.get("persistentVolumeClaim", {}).get("claimName", f"{pod}-{volume['name']}")
            self.volumes.add(f"{self.mark}-{claim}")
            return f"{self.mark}-{claim}"
        folder = self.directory / pod / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        for one in maps:
            data = next(o["data"] for o in self.objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] == one["name"])
            for name, text in data.items():
                (folder / name).write_text(text, encoding="utf-8")
        return folder

    def start(self, pod, names, spec, environment):
        """Runs a pod: its init containers to their end, then its container."""
        mounts = {volume["name"]: self.mount(pod, volume) for volume in spec["volumes"]}
        for container in spec.get("initContainers", []) + spec["containers"]:
            words = ["--user", spec["securityContext"]["runAsUser"], "--read-only", "--cap-drop=ALL",
                     "--security-opt=no-new-privileges", f"--network={self.mark}", "--no-healthcheck"]
            words += [f"--network-alias={name}" for name in names]
            for m in container["volumeMounts"]:
                if m["name"] == "tmp":
                    words.append(f"--tmpfs={m['mountPath']}")
                    continue
                words.append(f"--volume={mounts[m['name']]}:{m['mountPath']}{':ro' if m.get('readOnly') else ''}")
            words += [f"--env={name}={value}" for name, value in environment.items()]
            # As Kubernetes does with $(NAME); one epoch shows as much as five.
            command = [word.replace("$(JOB_COMPLETION_INDEX)", environment.get("JOB_COMPLETION_INDEX", ""))
                       .replace("--epochs=5", "--epochs=1") for word in container["command"]]
            if container is not spec["containers"][0]:
                run("docker", "run", "--rm", *words, "--entrypoint", command[0], container["image"], *command[1:])
                continue
            self.containers[pod] = run("docker", "run", "-d", *words, "--entrypoint", command[0], container["image"],
                                       *command[1:]).stdout.strip()

    def assert_all_end_with_0(self):
        deadline = time.monotonic() + TIME_LIMIT
        for pod, container in self.containers.items():
            code = run("docker", "wait", container, seconds=max(1, deadline - time.monotonic())).stdout.strip()
            self.assertEqual(code, "0", f"{pod}:\n{run('docker', 'logs', container).stdout[-3000:]}")
        with self.subTest("the chief's volume has the result"):
            chief = next(c for pod, c in self.containers.items() if "chief" in pod)
            run("docker", "cp", f"{chief}:/checkpoints/summary.json", self.directory)
            summary = json.loads((self.directory / "summary.json").read_text(encoding="utf-8"))
            self.assertEqual((summary["ps"], summary["workers"], summary["epochs"]), (2, 4, 1))

    def test_plain(self):
        self.load("base")
        for o in self.objects:
            if o["kind"] == "StatefulSet":
                for i in range(o["spec"]["replicas"]):
                    pod = f"{o['metadata']['name']}-{i}"
                    self.start(pod, [f"{pod}.{o['spec']['serviceName']}"], o["spec"]["template"]["spec"], {"POD": pod})
        for o in self.objects:
            if o["kind"] == "Job":
                spec = o["spec"]["template"]["spec"]
                for i in range(o["spec"]["completions"]):
                    pod = f"{o['metadata']['name']}-{i}"
                    self.start(pod, [f"{pod}.{spec['subdomain']}"], spec, {"JOB_COMPLETION_INDEX": str(i)})
        self.assert_all_end_with_0()

    def test_jobset(self):
        self.load("jobset")
        jobset = next(o for o in self.objects if o["kind"] == "JobSet")
        for job in jobset["spec"]["replicatedJobs"]:
            spec = job["template"]["spec"]
            for i in range(spec["completions"]):
                pod = f"{jobset['metadata']['name']}-{job['name']}-0-{i}"
                self.start(pod, [f"{pod}.{jobset['spec']['network']['subdomain']}"], spec["template"]["spec"],
                           {"JOB_COMPLETION_INDEX": str(i)})
        self.assert_all_end_with_0()

    def test_tfjob(self):
        self.load("tfjob")
        job = next(o for o in self.objects if o["kind"] == "TFJob")
        roles = {role.lower(): spec for role, spec in job["spec"]["tfReplicaSpecs"].items()}
        name = job["metadata"]["name"]
        hosts = {role: [f"{name}-{role}-{i}.default.svc" for i in range(spec["replicas"])] for role, spec in roles.items()}
        cluster = {role: [f"{host}:2222" for host in names] for role, names in hosts.items()}
        for role, spec in roles.items():
            for i, host in enumerate(hosts[role]):
                config = {"cluster": cluster, "task": {"type": role, "index": i}, "environment": "cloud"}
                self.start(f"{name}-{role}-{i}", [host], spec["template"]["spec"], {"TF_CONFIG": json.dumps(config)})
        self.assert_all_end_with_0()


if __name__ == "__main__":
    result = unittest.main(verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.testsRun == len(result.skipped) else 0)
