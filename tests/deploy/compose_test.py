#!/usr/bin/env python3
"""A cluster in containers, as deploy/docker-compose.yml and `cairn cluster generate` describe it.

    CAIRN_MNIST_DIR=DIR python3 tests/deploy/compose_test.py     # DIR: real MNIST, IDX files

Builds the images first. Skipped, with a message, if there is no Docker or no MNIST. BUILD_ARGS holds further arguments
of `docker build`.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
import uuid

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MNIST_DIR = os.environ.get("CAIRN_MNIST_DIR", "")
SKIPPED = 77
TIME_LIMIT = 900  # seconds, for a whole training on a busy machine
PS, WORKERS = ["ps0", "ps1"], ["worker0", "worker1", "worker2"]


def run(*command, seconds=TIME_LIMIT, check=True, **options):
    """Runs a command and returns the finished process, with its output as text."""
    result = subprocess.run([str(word) for word in command], timeout=seconds, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, check=False, **options)
    if check and result.returncode != 0:
        raise AssertionError(f"{shlex.join(map(str, command))} ended with {result.returncode}\n{result.stdout[-4000:]}")
    return result


def answers(*command):
    return shutil.which(command[0]) is not None and run(*command, seconds=60, check=False).returncode == 0


def compose_command():
    """Compose v2 or 1.29; None when there is neither, or no engine."""
    if not answers("docker", "info"):
        return None
    return next((c for c in (["docker", "compose"], ["docker-compose"]) if answers(*c, "version")), None)


COMPOSE = compose_command()


def setUpModule():
    if COMPOSE is None:
        raise unittest.SkipTest("no Docker engine with Compose answers here")
    if not MNIST_DIR:
        raise unittest.SkipTest("CAIRN_MNIST_DIR is not set")
    for target in ("ps", "worker"):
        extra = shlex.split(os.environ.get("BUILD_ARGS", ""))
        run("docker", "build", *extra, "-f", SOURCE / "deploy/Dockerfile", "--target", target, "-t",
            f"cairn-{target}:latest", SOURCE, seconds=7200)


class ComposeTest(unittest.TestCase):
    hashes = set()  # of the parameters that trainings ended with

    def setUp(self):
        self.project = f"cairn{uuid.uuid4().hex[:8]}"
        self.file = SOURCE / "deploy/docker-compose.yml"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-compose-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.addCleanup(self.compose, "down", "--volumes", "--timeout", "5")

    def compose(self, *arguments):
        # A path that is valid for both the daemon and this test.
        environment = dict(os.environ, CAIRN_DATA=str(pathlib.Path(MNIST_DIR).resolve()), CAIRN_SOURCE=str(SOURCE),
                           CAIRN_MODEL=str(SOURCE / "deploy/examples/mnist_cnn.json"))
        return run(*COMPOSE, "-p", self.project, "-f", self.file, *arguments, env=environment)

    def container(self, service):
        names = run("docker", "ps", "-a", "--filter", f"label=com.docker.compose.project={self.project}", "--filter",
                    f"label=com.docker.compose.service={service}", "--format", "{{.ID}}").stdout.split()
        self.assertEqual(len(names), 1, f"containers of {service}")
        return names[0]

    def inspect(self, service, what):
        return run("docker", "inspect", "-f", f"{{{{{what}}}}}", self.container(service)).stdout.strip()

    def logs(self, service):
        return run("docker", "logs", self.container(service)).stdout

    def wait_for_log(self, service, pattern):
        deadline = time.monotonic() + TIME_LIMIT
        while not re.search(pattern, self.logs(service)):
            if time.monotonic() > deadline:
                self.fail(f"{service} did not say {pattern!r}:\n{self.logs(service)[-3000:]}")
            time.sleep(0.5)

    def kill_9(self, service):
        """Sends a signal to the process itself, as the kernel would, without the engine."""
        pid = self.inspect(service, ".State.Pid")
        run("docker", "run", "--rm", "--pid=host", "--user=root", "--entrypoint=sh", "cairn-ps", "-c", f"kill -9 {pid}")

    def assert_all_end_with_0(self):
        deadline = time.monotonic() + TIME_LIMIT
        for service in PS + WORKERS:
            left = max(1, deadline - time.monotonic())
            try:
                code = run("docker", "wait", self.container(service), seconds=left).stdout.strip()
            except subprocess.TimeoutExpired:
                self.fail(f"{service} still runs:\n{self.logs(service)[-3000:]}")
            self.assertEqual(code, "0", f"{service}:\n{self.logs(service)[-3000:]}")

    def summary(self):
        run("docker", "cp", f"{self.container('worker0')}:/checkpoints/summary.json", self.directory)
        return json.loads((self.directory / "summary.json").read_text())

    def assert_trained(self, summary):
        self.assertGreaterEqual(summary["val_accuracy"], 0.98)
        self.assertEqual((summary["ps"], summary["workers"]), (2, 3))
        self.hashes.add(summary["parameters_sha256"])
        self.assertEqual(len(self.hashes), 1, "synchronous training ends with the same bits, disturbed or not")

    def test_trains_mnist_and_every_container_ends_with_0(self):
        self.compose("up", "-d", "--no-build")
        self.assert_all_end_with_0()
        summary = self.summary()
        print(f"undisturbed: {json.dumps(summary)}", file=sys.stderr)
        self.assert_trained(summary)
        for service in PS + WORKERS:
            self.assertEqual(self.inspect(service, ".RestartCount"), "0", service)

    def test_training_continues_when_a_server_and_a_worker_are_killed(self):
        self.file = self.directory / "docker-compose.yml"
        self.file.write_text(
            run("docker", "run", "--rm", "--entrypoint=cairn", "cairn-worker", "cluster", "generate", "--format", "compose",
                "--ps", 2, "--workers", 3, "--", "--sync_replicas", "--epochs=5", "--save_steps=50",
                "--lost_workers=wait").stdout)
        self.compose("up", "-d", "--no-build")
        self.wait_for_log("worker0", r"Epoch 2/5")
        self.kill_9("ps1")
        self.wait_for_log("worker0", r"Epoch 3/5")
        self.kill_9("worker2")
        self.assert_all_end_with_0()
        self.assertEqual([self.inspect(s, ".RestartCount") for s in PS + WORKERS], ["0", "1", "0", "0", "1"])
        summary = self.summary()
        print(f"with kills: {json.dumps(summary)}", file=sys.stderr)
        self.assert_trained(summary)

    def test_monitoring_finds_every_task(self):
        """Needs an image of Prometheus: PROMETHEUS_IMAGE or the one that the file names. TensorBoard's image is
        built."""
        if not answers("docker", "image", "inspect", "cairn-tensorboard"):
            self.compose("--profile", "monitoring", "build", "tensorboard")
        prometheus = os.environ.get("PROMETHEUS_IMAGE", "prom/prometheus:v2.53.2")
        if run("docker", "image", "inspect", prometheus, check=False).returncode != 0:
            self.skipTest(f"there is no image {prometheus} here")
        self.compose("--profile", "monitoring", "up", "-d", "--no-build")
        deadline = time.monotonic() + TIME_LIMIT
        while sorted(self.scraped()) != ["ps", "ps", "worker", "worker", "worker"]:
            self.assertLess(time.monotonic(), deadline, self.logs("prometheus")[-3000:])
            time.sleep(1)
        self.wait_for_log("worker0", r"Epoch 2/5")
        while self.get(6006, "data/plugins_listing") is None or not self.get(6006, "data/runs"):
            self.assertLess(time.monotonic(), deadline, self.logs("tensorboard")[-3000:])
            time.sleep(1)

    def scraped(self):
        """The roles of the tasks from which Prometheus receives metrics."""
        answer = self.get(9090, "api/v1/query?query=up")
        return [r["metric"]["role"] for r in answer["data"]["result"] if r["value"][1] == "1"] if answer else []

    def get(self, port, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
                return json.load(answer)
        except OSError:
            return None

    def test_images_run_without_root_and_ps_has_no_cuda(self):
        for image in ("cairn-ps", "cairn-worker"):
            self.assertEqual(run("docker", "run", "--rm", "--entrypoint=id", image, "-u").stdout.strip(), "1000")
            self.assertEqual(run("docker", "inspect", "-f", "{{.Config.StopSignal}}", image).stdout.strip(), "SIGTERM")
            libraries = run("docker", "run", "--rm", "--entrypoint=sh", image, "-c", "ls /usr/lib/* /usr/local/lib").stdout
            self.assertNotIn("libcublas", libraries)
            self.assertNotIn("libcudnn", libraries)

    def test_a_stopped_server_ends_with_143(self):
        name = run("docker", "run", "-d", "cairn-ps", "--ps_hosts=localhost:2222", "--job_name=ps",
                   "--task_index=0").stdout.strip()
        self.addCleanup(run, "docker", "rm", "-f", name)
        deadline = time.monotonic() + 120
        while run("docker", "inspect", "-f", "{{.State.Health.Status}}", name).stdout.strip() != "healthy":
            self.assertLess(time.monotonic(), deadline, run("docker", "logs", name).stdout)
            time.sleep(0.5)
        run("docker", "stop", "--time", "60", name)
        self.assertEqual(run("docker", "inspect", "-f", "{{.State.ExitCode}}", name).stdout.strip(), "143")


if __name__ == "__main__":
    result = unittest.main(verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.testsRun == len(result.skipped) else 0)
