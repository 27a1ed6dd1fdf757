#!/usr/bin/env python3
"""`cairn cluster generate`: its files start a cluster, and those in deploy/ are its output."""

import json
import random
import socket
import unittest

import harness
from harness import BIN_DIR, MLP, REPOSITORY, IntegrationTest, read_summary, small_data


class GenerateTest(IntegrationTest):

    def generate(self, *arguments, cwd=None):
        process = self.run_to_end("cairn", "cluster", "generate", *arguments, cwd=cwd)
        self.assert_exit(0, process)
        return process.stdout

    def assert_is(self, path, *arguments):
        """The file in deploy/ is the output of the command that its first lines name."""
        command = f"cairn cluster generate {' '.join(map(str, arguments))}"
        self.assertEqual((REPOSITORY / path).read_text(), self.generate(*arguments, cwd=REPOSITORY),
                         f"write it again: {command} > {path}")

    def test_the_compose_file_in_deploy_is_generated(self):
        self.assert_is("deploy/docker-compose.yml", "--format", "compose", "--ps", 2, "--workers", 3, "--",
                       "--sync_replicas", "--epochs=5")

    def test_the_kubernetes_manifests_in_deploy_are_generated(self):
        self.assert_is("deploy/kubernetes/base/cairn.yaml", "--format", "kubernetes", "--ps", 2, "--workers", 4, "--model",
                       "deploy/examples/mnist_cnn.json", "--", "--sync_replicas", "--epochs=5")

    def test_every_task_accepts_the_generated_cluster_spec(self):
        path = self.directory / "cluster.json"
        self.assertEqual(self.generate("--ps", 2, "--workers", 3, "--hosts", "a,b", "--output", path), "")
        self.assertEqual(json.loads(path.read_text()), {"ps": ["a:2222", "b:2222"], "worker": ["a:2223", "b:2223", "a:2224"]})

    def test_the_shell_script_trains_and_ends_with_0(self):
        script = self.directory / "run.sh"
        self.generate("--format", "shell", "--ps", 2, "--workers", 2, "--hosts", "localhost", "--port", free_ports(4),
                      "-o", script, "--", "--sync_replicas", "--epochs=1")
        summary = self.directory / "summary.json"
        process = self.run_script(script, "--model", MLP, "--data_dir", small_data(), "--threads=1", "--summary", summary)
        self.assert_exit(0, process)
        self.assertEqual((read_summary(summary)["ps"], read_summary(summary)["workers"]), (2, 2))
        self.assert_nothing_runs()

    def test_the_shell_script_ends_with_the_code_of_the_task_that_failed(self):
        script = self.directory / "run.sh"
        self.generate("--format", "shell", "--hosts", "localhost", "--port", free_ports(2), "-o", script)
        process = self.run_script(script, "--model", "missing.json", "--data_dir", small_data())
        self.assert_exit(2, process)
        self.assertRegex(process.stderr, r"worker/0 ended with 2, the others are stopped: .*missing.json")
        self.assert_nothing_runs()

    def run_script(self, script, *arguments):
        return self.run_to_end("/bin/bash", script, *arguments, env={"CAIRN_BIN_DIR": str(BIN_DIR)})

    def test_conflicting_arguments_are_refused(self):
        for arguments, fault in (
            (["--format", "podman"], "--format: 'podman'"),
            (["--format", "compose", "--", "--epoch=5"], "flags of cairn-worker: unknown flag --epoch, did you mean --epochs"),
            (["--format", "compose", "--", "--data_dir=/d"], "--data_dir: is fixed in containers"),
            (["--format", "compose", "--hosts", "a"], "--hosts: does not go with --format compose"),
            (["--", "--epochs=5"], "--epochs=5: does not go with --format clusterspec"),
            (["--format", "kubernetes", "--model", "missing.json"], "--model: .*missing.json"),
            (["--format", "kubernetes", "--name", "Big"], "--name: 'Big' is not a name of at most 40 lower-case"),
            (["--workers", 70000], "--port: 2222 leaves too few ports for 70001 tasks"),
        ):
            with self.subTest(fault):
                self.assert_refused(self.run_to_end("cairn", "cluster", "generate", *arguments), fault)


def free_ports(count):
    """The first of so many unused ports in a row, below the range that systems assign automatically."""
    for _ in range(100):
        first = random.randrange(12000, 30000)
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise AssertionError("no free ports")


if __name__ == "__main__":
    harness.main()
