#!/usr/bin/env python3
"""The manifests of deploy/kubernetes and the Compose files: strictly valid, and consistent about the tasks.

Kubernetes' own schemas come with the package kubernetes-validate, which the first run installs into a separate
environment. Skipped, with a message, if no package index can be reached.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
KUBERNETES = SOURCE / "deploy/kubernetes"
BIN_DIR = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", SOURCE / "build/release/bin"))
CACHE_DIR = pathlib.Path(os.environ.get("CAIRN_CACHE_DIR", SOURCE / "build/release"))
PACKAGE = "kubernetes-validate==1.37.0"
SKIPPED = 77
# The oldest that deploy/kubernetes/README.md promises, and a recent one.
VERSIONS = ["1.29", "1.36"]
PERMANENT = [1, 2, 3]  # exit codes of failures that a restart cannot repair

# Fields of custom resources, as their definitions (JobSet v0.6, TFJob v1, Katib v1beta1) name them. Their pod templates
# are checked with Kubernetes' own schemas.
CUSTOM = {
    "JobSet": {"spec": {"network", "successPolicy", "failurePolicy", "replicatedJobs"},
               "spec.network": {"enableDNSHostnames", "subdomain", "publishNotReadyAddresses"},
               "spec.successPolicy": {"operator", "targetReplicatedJobs"},
               "spec.failurePolicy": {"maxRestarts", "rules"}},
    "TFJob": {"spec": {"runPolicy", "tfReplicaSpecs"}, "spec.runPolicy": {"cleanPodPolicy", "backoffLimit"},
              "spec.tfReplicaSpecs": {"PS", "Chief", "Worker"}},
    "Experiment": {"spec": {"objective", "algorithm", "earlyStopping", "metricsCollectorSpec", "parallelTrialCount",
                            "maxTrialCount", "maxFailedTrialCount", "parameters", "trialTemplate"},
                   "spec.objective": {"type", "goal", "objectiveMetricName"},
                   "spec.algorithm": {"algorithmName"},
                   "spec.earlyStopping": {"algorithmName", "algorithmSettings"},
                   "spec.metricsCollectorSpec": {"collector"},
                   "spec.trialTemplate": {"primaryContainerName", "trialParameters", "trialSpec"}},
}


def enter_environment():
    """Runs this program again in an environment with the package."""
    home = CACHE_DIR / "kubernetes-validate"
    python = home / "bin/python"
    if not (home / PACKAGE).exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True, timeout=300)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check",
                            "--retries=1", "--timeout=15", PACKAGE], check=True, timeout=600)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"skipped: {PACKAGE} cannot be installed here: {error}", file=sys.stderr)
            sys.exit(SKIPPED)
        (home / PACKAGE).touch()
    os.execv(python, [python, "-B", __file__, *sys.argv[1:]])


try:
    import kubernetes_validate
    import yaml
except ImportError:
    enter_environment()


def objects(path):
    with open(path, encoding="utf-8") as file:
        return [document for document in yaml.safe_load_all(file) if document]


def named(path, kind, name=None):
    return next(o for o in objects(path) if o["kind"] == kind and name in (None, o["metadata"]["name"]))


def templates(path):
    """{role: (pods, pod template's spec, whatever holds it)} of a file."""
    found = {}
    for o in objects(path):
        if o["kind"] == "StatefulSet":
            found["ps"] = o["spec"]["replicas"], o["spec"]["template"]["spec"], o
        elif o["kind"] == "Job":
            found[o["metadata"]["name"].split("-")[-1]] = o["spec"]["completions"], o["spec"]["template"]["spec"], o
        elif o["kind"] == "JobSet":
            for job in o["spec"]["replicatedJobs"]:
                spec = job["template"]["spec"]
                found[job["name"]] = spec["completions"], spec["template"]["spec"], {
                    "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, "spec": spec}
        elif o["kind"] == "TFJob":
            for role, spec in o["spec"]["tfReplicaSpecs"].items():
                found[role.lower()] = spec["replicas"], spec["template"]["spec"], {
                    "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": role.lower()}, "template": spec["template"]}
    return found


FILES = [KUBERNETES / folder / "cairn.yaml" for folder in ("base", "jobset", "tfjob")]
BASE, JOBSET, TFJOB = FILES
KATIB = KUBERNETES / "katib.yaml"
EXAMPLE = SOURCE / "deploy/examples/python/tune_optuna.py"


class ManifestsTest(unittest.TestCase):

    def test_every_object_is_strictly_valid(self):
        for path in FILES:
            own = [o for o in objects(path) if o["kind"] not in CUSTOM]
            for o in own + [held for _, _, held in templates(path).values()]:
                for version in VERSIONS:
                    with self.subTest(file=path.parent.name, kind=o["kind"], name=o["metadata"]["name"], version=version):
                        kubernetes_validate.validate(o, version, strict=True)

    def test_a_misspelt_field_is_found(self):
        job = named(BASE, "Job")
        job["spec"]["podFailurePolicyy"] = job["spec"].pop("podFailurePolicy")
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(job, VERSIONS[0], strict=True)

    def test_custom_resources_have_only_known_fields(self):
        for path, kind in ((JOBSET, "JobSet"), (TFJOB, "TFJob"), (KATIB, "Experiment")):
            for place, known in CUSTOM[kind].items():
                value = named(path, kind)
                for key in place.split("."):
                    value = value[key]
                self.assertLessEqual(value.keys(), known, f"{kind} {place}")

    def test_addresses_are_those_of_the_pods(self):
        for path, name in ((BASE, "cairn-{role}-{i}.cairn:2222"), (JOBSET, "cairn-{role}-0-{i}.cairn:2222")):
            cluster = json.loads(named(path, "ConfigMap")["data"]["cluster.json"])
            expected = {role: [name.format(role=role, i=i) for i in range(count)]
                        for role, (count, _, _) in templates(path).items()}
            self.assertEqual(cluster, expected, path.parent.name)
        service = named(BASE, "Service")
        self.assertEqual((service["metadata"]["name"], service["spec"]["clusterIP"]), ("cairn", "None"))
        self.assertEqual(named(BASE, "StatefulSet")["spec"]["serviceName"], "cairn")
        for role in ("chief", "worker"):
            self.assertEqual(templates(BASE)[role][1]["subdomain"], "cairn")

    def test_exit_codes_are_treated_as_documented(self):
        for path in (BASE, JOBSET):
            for role, (_, pod, held) in templates(path).items():
                if held["kind"] != "Job":
                    continue
                fails, ignores = held["spec"]["podFailurePolicy"]["rules"]
                self.assertEqual(fails["action"], "FailJob")
                self.assertEqual(fails["onExitCodes"], {"containerName": role, "operator": "In", "values": PERMANENT})
                self.assertEqual((ignores["action"], ignores["onPodConditions"][0]["type"]), ("Ignore", "DisruptionTarget"))
                self.assertEqual(pod["restartPolicy"], "Never")  # else the policy is refused
        for spec in named(TFJOB, "TFJob")["spec"]["tfReplicaSpecs"].values():
            self.assertEqual(spec["restartPolicy"], "ExitCode")

    def test_the_chief_has_time_to_save(self):
        for path in FILES:
            self.assertGreaterEqual(templates(path)["chief"][1]["terminationGracePeriodSeconds"], 60)

    def test_no_container_runs_as_root(self):
        for path in FILES:
            for _, pod, _ in templates(path).values():
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                for container in pod["containers"] + pod.get("initContainers", []):
                    self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"])
                    self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])

    def test_workers_are_given_only_known_flags(self):
        own = re.compile(r"--(cluster|job_name|task_index|model|data_dir|train_dir|summary|metrics_port)=")
        for path in FILES:
            for role in ("chief", "worker"):
                program, *flags = templates(path)[role][1]["containers"][0]["command"]
                self.assertEqual(program, "cairn-worker")
                checked = subprocess.run([BIN_DIR / "cairn", "cluster", "generate", "--format", "compose", "--",
                                          *(flag for flag in flags if not own.match(flag))],
                                         capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_a_tfjob_configures_its_tasks_only_by_tf_config(self):
        for role, (_, pod, _) in templates(TFJOB).items():
            container, = pod["containers"]
            self.assertEqual(container["name"], "tensorflow")  # where the operator puts TF_CONFIG
            self.assertNotRegex(" ".join(container["command"]), "cluster|job_name|task_index|hosts")
            self.assertEqual(container["ports"], [{"name": "tfjob-port", "containerPort": 2222}], role)

    def test_a_trial_of_katib_is_a_valid_job_that_runs_the_example(self):
        spec = named(KATIB, "Experiment")["spec"]
        template = spec["trialTemplate"]
        job = {**template["trialSpec"], "metadata": {"name": "trial"}}
        for version in VERSIONS:
            kubernetes_validate.validate(job, version, strict=True)
        pod = job["spec"]["template"]["spec"]
        container, = pod["containers"]
        self.assertEqual((template["primaryContainerName"], pod["restartPolicy"]), (container["name"], "Never"))
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])
        for each in pod["initContainers"] + pod["containers"]:
            self.assertEqual((each["image"], each["securityContext"]["readOnlyRootFilesystem"]), ("cairn-tune:latest", True))

        text = EXAMPLE.read_text(encoding="utf-8")
        python, program, *flags = container["command"]
        self.assertEqual((python, pathlib.Path(program).name), ("python3", EXAMPLE.name))
        for flag in flags:
            self.assertIn(f'"{flag.partition("=")[0]}"', text)
        self.assertIn(f'{spec["objective"]["objectiveMetricName"]}=', text)  # the line that the collector reads
        parameters = {parameter["name"]: parameter["feasibleSpace"] for parameter in spec["parameters"]}
        self.assertEqual({each["reference"] for each in template["trialParameters"]}, parameters.keys())
        for each in template["trialParameters"]:
            self.assertIn(f'--{each["name"]}=${{trialParameters.{each["name"]}}}', flags)
        for space in parameters.values():  # Katib takes texts
            self.assertLess(float(space["min"]), float(space["max"]))
            self.assertTrue(all(isinstance(bound, str) for bound in space.values()))

    def test_the_models_equal_the_example(self):
        example = (SOURCE / "deploy/examples/mnist_cnn.json").read_text(encoding="utf-8")
        for path in FILES:
            self.assertEqual(named(path, "ConfigMap")["data"]["model.json"].strip(), example.strip(), path.parent.name)

    def test_every_kustomization_names_files_that_exist(self):
        for path in KUBERNETES.glob("*/kustomization.yaml"):
            for resource in objects(path)[0]["resources"]:
                self.assertTrue((path.parent / resource).exists(), f"{path}: {resource}")

    def test_the_gpu_overrides_name_every_worker(self):
        base = objects(SOURCE / "deploy/docker-compose.yml")[0]["services"]
        override = objects(SOURCE / "deploy/docker-compose.gpu.yml")[0]["services"]
        self.assertEqual(override.keys(), {service for service in base if service.startswith("worker")})
        for service in override.values():
            device, = service["deploy"]["resources"]["reservations"]["devices"]
            self.assertEqual((device["driver"], device["capabilities"]), ("nvidia", ["gpu"]))
            self.assertEqual(service["build"]["target"], "worker-gpu")


if __name__ == "__main__":
    unittest.main(verbosity=2)
