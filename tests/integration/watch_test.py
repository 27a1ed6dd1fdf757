"""Monitoring of a cluster while it trains: /metrics, /statusz, /healthz, `cairn status`, and the files of a run for
TensorBoard and scripts."""

import csv
import json
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request

from harness import (DONE, FAILURE, MLP, REPOSITORY, RETRYABLE, TIME_LIMIT, Cluster, IntegrationTest, main, reserve_port,
                     small_data)


ENDLESS = ["--model", MLP, "--sync_replicas", "--train_steps=1000000", "--display_every=1",
           "--batch_size=10", "--novalidation"]


class WatchTest(IntegrationTest):

    def start_watched(self, ps=2, workers=2, flags=()):
        """Starts a cluster whose tasks serve status pages, and waits until the metrics count at least 20 steps."""
        cluster = Cluster(self, ps=ps, workers=workers)
        tasks = {f"ps/{i}": cluster.start("ps", i, "--metrics_port=0", "--metrics_host=127.0.0.1") for i in range(ps)}
        for i in range(workers):
            tasks[f"worker/{i}"] = cluster.start("worker", i, *ENDLESS, "--metrics_port=0",
                                                 "--metrics_host=127.0.0.1", *flags)
        self.assert_says(tasks["worker/0"], r"^ *21/")
        return cluster, tasks

    def page(self, task, path):
        """The status code, content type and text of a page."""
        self.assert_says(task, "status at http://")
        base = re.search(r"status at (http://[0-9.:]+)", task.stderr).group(1)
        try:
            with urllib.request.urlopen(base + path, timeout=TIME_LIMIT) as reply:
                return reply.status, reply.headers["Content-Type"], reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read().decode()

    def metrics(self, task):
        """The value of each sample, by its name with labels."""
        status, kind, text = self.page(task, "/metrics")
        self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in text.splitlines() if not line.startswith("#")}

    def status(self, cluster, *flags):
        where, _ = cluster.by_file("ps", 0)
        return self.run_to_end("cairn", "status", *where, *flags)

    def poll_status(self, cluster, condition, what):
        """Runs `cairn status --json` until the condition holds, at the latest after the cluster's own time limits."""
        deadline = time.monotonic() + TIME_LIMIT
        while time.monotonic() < deadline:
            run = self.status(cluster, "--json")
            view = json.loads(run.stdout)
            if condition(view):
                return run, view
        self.fail(f"{what} not within {TIME_LIMIT} s: {run.stdout}")


class PagesTest(WatchTest):

    def test_metrics_of_servers_and_workers(self):
        _, tasks = self.start_watched()
        server = self.metrics(tasks["ps/0"])
        self.assertEqual(server['cairn_ps_state{state="ready"}'], 1)
        self.assertEqual(server['cairn_ps_members{state="live"}'], 2)
        self.assertGreaterEqual(server['cairn_ps_pushes_total{outcome="accepted"}'], 40)
        self.assertGreaterEqual(server["cairn_ps_examples_total"], 400)
        self.assertGreaterEqual(server["cairn_ps_round_seconds_count"], 20)
        self.assertGreater(server["cairn_ps_received_bytes_total"], 40 * server["cairn_ps_variable_bytes"])
        self.assertGreater(server["cairn_ps_sent_bytes_total"], 40 * server["cairn_ps_variable_bytes"])
        self.assertGreater(server["cairn_ps_job_memory_bytes"], server["cairn_ps_variable_bytes"])
        worker = self.metrics(tasks["worker/1"])
        self.assertGreaterEqual(worker["cairn_worker_examples_total"], 200)
        self.assertGreater(worker["cairn_worker_loss"], 0)
        self.check_phases(tasks["worker/1"])
        for task in tasks.values():
            self.assertGreater(self.metrics(task)["process_resident_memory_bytes"], 1 << 20)
            self.assertEqual(self.page(task, "/healthz")[::2], (200, "ok\n"))
            status, kind, html = self.page(task, "/statusz")
            self.assertEqual((status, kind), (200, "text/html; charset=utf-8"))
            self.assertIn(f"<h1>{task.name}</h1>", html)
            self.assertEqual(self.page(task, "/else")[0], 404)
        self.check_names(tasks)
        self.check_with_promtool(tasks)

    def check_phases(self, worker):
        """The phases of a step add up to the step, on a page during whose writing no step ended."""
        deadline = time.monotonic() + TIME_LIMIT
        while time.monotonic() < deadline:
            page = self.metrics(worker)
            phases = sum(page[f'cairn_worker_step_phase_seconds_sum{{phase="{phase}"}}']
                         for phase in ("input", "compute", "answer"))
            whole = page["cairn_worker_step_seconds_sum"]
            if abs(phases - whole) < 1e-6 * whole:
                return
        self.fail(f"phases of {phases} s, steps of {whole} s")

    def check_names(self, tasks):
        """Every metric in the alerts and the dashboard exists."""
        served = set()
        for task in tasks.values():
            served |= set(re.findall(r"^# TYPE (\S+)", self.page(task, "/metrics")[2], re.MULTILINE))
        monitoring = REPOSITORY / "deploy/monitoring"
        for file in ("alerts.yml", "grafana-dashboard.json"):
            for name in set(re.findall(r"\bcairn_(?:ps|worker)_\w+", (monitoring / file).read_text())):
                family = re.sub(r"_(bucket|sum|count)$", "", name)
                if family.startswith("cairn_worker_checkpoint_"):  # these need --train_dir
                    continue
                self.assertIn(family, served, f"in {file}")

    def check_with_promtool(self, tasks):
        promtool = shutil.which("promtool")
        if promtool is None:
            print("promtool is not here (Debian's package prometheus): its checks are left out")
            return
        for task in tasks.values():
            check = subprocess.run([promtool, "check", "metrics"], input=self.page(task, "/metrics")[2], text=True,
                                   capture_output=True, timeout=TIME_LIMIT)
            self.assertEqual((check.returncode, check.stdout + check.stderr), (0, ""))
        rules = subprocess.run([promtool, "check", "rules", REPOSITORY / "deploy/monitoring/alerts.yml"],
                               capture_output=True, timeout=TIME_LIMIT)
        self.assertEqual(rules.returncode, 0, rules.stdout)

    def test_the_launcher_numbers_the_ports_and_names_a_taken_one(self):
        taken = reserve_port(self)
        server = self.start("cairn-ps", f"--ps_hosts=127.0.0.1:{reserve_port(self)}", "--job_name=ps", "--task_index=0",
                            "--reuse_port", f"--metrics_port={taken}", "--metrics_host=127.0.0.1")
        self.assert_exit(RETRYABLE, server)  # after a wait for a process that may be about to end
        self.assertRegex(server.stderr, f"--metrics_port: cannot listen on 127.0.0.1:{taken}: another process is using")
        too_many = self.train(MLP, "--metrics_port=65535")
        self.assert_refused(too_many, "--metrics_port: each task needs a port, but the 2 ports from 65535 on exceed")


class StatusTest(WatchTest):

    def test_status_shows_a_working_cluster_and_a_paused_worker(self):
        cluster, tasks = self.start_watched(flags=["--lease=2"])
        run, view = self.poll_status(
            cluster, lambda view: len(view["workers"]) == 2 and all(w["step_seconds"] > 0 for w in view["workers"]),
            "reports of both workers")
        self.assertEqual(run.code, DONE, run.stdout)
        self.assertTrue(view["well"])
        self.assertEqual(view["job"]["mode"], "sync")
        self.assertEqual([worker["address"] for worker in view["workers"]], cluster.addresses["worker"])
        self.assertEqual([server["address"] for server in view["servers"]], cluster.addresses["ps"])
        for worker in view["workers"]:
            self.assertGreater(worker["examples_per_second"], 0)
            self.assertGreater(worker["resident_bytes"], 1 << 20)
        table = self.status(cluster)
        self.assertEqual(table.code, DONE)
        for task, address in (("ps/1", cluster.addresses["ps"][1]), ("worker/1", cluster.addresses["worker"][1])):
            self.assertRegex(table.stdout, rf"(?m)^{task} +{address} ")

        tasks["worker/1"].signal(signal.SIGSTOP)
        _, view = self.poll_status(cluster, lambda view: view["job"]["waiting_for"] == ["worker/1"] and
                                   view["job"]["waiting_seconds"] > 1, "waiting for worker/1")
        run, view = self.poll_status(cluster, lambda view: view["workers"][1]["state"] == "lost", "worker/1 lost")
        self.assertEqual(run.code, FAILURE)
        self.assertRegex(view["troubles"][0], "^worker/1 is lost: no heartbeat for ")
        tasks["worker/1"].signal(signal.SIGCONT)

    def test_status_names_unreachable_servers(self):
        cluster = Cluster(self, ps=2, workers=1)
        self.assert_says(cluster.start("ps", 0), "Started server")
        run = self.status(cluster)
        self.assert_exit(FAILURE, run)
        self.assertRegex(run.stdout, r"(?m)^ps/0 .* empty ")
        self.assertRegex(run.stdout, r"(?m)^ps/1 .* unreachable ")
        self.assertIn(f"! ps/1 at {cluster.addresses['ps'][1]}: connection refused", run.stdout)


class LogFormatTest(WatchTest):

    def test_with_json_output_every_line_is_an_object(self):
        run = self.train(MLP, "--ps=1", "--workers=2", "--sync_replicas", "--epochs=2", "--batch_size=50", "--verbose",
                         "--log_format=json", "--display_every=10")
        self.assert_exit(DONE, run)
        events = [json.loads(line) for line in run.stdout.splitlines()]
        self.assertEqual([event["event"] for event in events],
                         ["epoch_begin", "step", "epoch_end", "epoch_begin", "step", "epoch_end", "result"])
        self.assertEqual((events[2]["epoch"], events[2]["step"], events[2]["steps"]), (1, 20, 20))
        self.assertGreater(events[2]["metrics"]["val_accuracy"], 0)
        self.assertGreater(events[2]["examples_per_second"], 0)
        self.assertEqual(events[-1]["global_step"], 40)
        lines = [json.loads(line) for line in run.stderr.splitlines()]
        self.assertEqual({line["task"] for line in lines} - {"cairn train"}, {"ps/0", "worker/0", "worker/1"})
        for line in lines:
            self.assertEqual(list(line), ["time", "level", "task", "message"])


class CheckTest(WatchTest):

    def test_check_examines_a_cluster_before_its_job(self):
        cluster = Cluster(self, ps=2, workers=1)
        self.assert_says(cluster.start("ps", 0), "Started server")
        late = cluster.start("ps", 1)
        self.assert_says(late, "Started server")
        where, _ = cluster.by_file("ps", 0)
        job = ["--model", MLP, "--data_dir", small_data(), "--train_dir", self.directory / "run"]
        well = self.run_to_end("cairn", "check", *where, *job)
        self.assertEqual(well.code, DONE, well.stdout)
        self.assertRegex(well.stdout, r"(?m)^ps/1 +ok .* empty, .* away")
        self.assertRegex(well.stdout, r"(?m)^plan +ok .*times the mean$")
        self.assertRegex(well.stdout, r"(?m)^data +ok +2,000 training examples, 500 validation examples$")
        late.signal(signal.SIGKILL)
        self.assertTrue(late.wait(TIME_LIMIT))
        ill = self.run_to_end("cairn", "check", *where, *job)
        self.assert_exit(FAILURE, ill)
        self.assertRegex(ill.stdout, r"(?m)^ps/1 +FAULT .*: connection refused\n +-> start it there: cairn-ps "
                                     r"--job_name ps --task_index 1; ")
        twice = self.run_to_end("cairn", "check", "--ps_hosts=a:1,a:1", "--worker_hosts=b:2")
        self.assert_exit(FAILURE, twice)
        self.assertRegex(twice.stdout, r"^cluster +FAULT .*a:1")


class TensorBoardWriterTest(WatchTest):

    def test_a_resumed_run_continues_its_tensorboard_files(self):
        """Only log.csv is read here: tests/interop reads the other files with TensorBoard."""
        run = self.directory / "run"
        train = [MLP, "--workers=2", "--sync_replicas", "--batch_size=100", f"--train_dir={run}", "--histogram_freq=1"]
        self.assert_exit(DONE, self.train(*train, "--epochs=2"))
        self.assert_exit(DONE, self.train(*train, "--epochs=3"))
        with open(run / "log.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["epoch"] for row in rows], ["0", "1", "2"])
        self.assertEqual(list(rows[0]), ["epoch", "accuracy", "loss", "val_accuracy", "val_loss"])
        self.assertGreater(float(rows[2]["val_accuracy"]), 0.5)
        for part in ("", "train", "validation"):
            files = list((run / part).glob("events.out.tfevents.*.cairn"))
            self.assertTrue(files, part)
        refused = self.train(MLP, "--histogram_freq=1")
        self.assert_refused(refused, "--histogram_freq needs --train_dir")


if __name__ == "__main__":
    main()
