"""The programs as command-line tools: misused flags, output that cannot be written, signals, terminals, files."""

import csv
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shlex
import signal
import socket
import struct
import subprocess
import termios
import time
import unittest

import harness
from harness import (BIN_DIR, DONE, FAILURE, INCOMPATIBLE, INTERRUPTED, MLP, REPOSITORY, RETRYABLE, TERMINATED, TIME_LIMIT, USAGE,
                     Cluster, IntegrationTest, read_summary, small_data)

try:
    import yaml
except ImportError:
    yaml = None

# Each of these has a special meaning in YAML, a shell, Compose or Kubernetes.
ODD_NAMES = ["price_$", "$HOME", "${HOME}", "$(HOSTNAME)", "$$", "a b", " lead", "trail ", "it's", 'say "x"', "a\nb", "\ttab",
             "# no comment", "key: value", "{a}", "[b]", "100%", "back\\slash", "é€😀", "-dash", "!bang", "yes", "no", "1e3", "0x1F",
             "null", "~", "&a", "*b", "`id`", "@NAME@", "\u2028", "a\x01b", "|", ">", "a;b", "a&b"]


class FlagsTest(IntegrationTest):

    def test_a_flag_given_twice_is_refused_whatever_its_kind(self):
        for program, arguments, flag in (
            ("cairn", ["train", MLP, "--sync_replicas", "--sync_replicas"], "--sync_replicas"),
            ("cairn", ["train", MLP, "--ps", "1", "--ps", "2"], "--ps"),
            ("cairn", ["predict", "w", "x", "-o", "a.npy", "--output=b.npy"], "--output"),
            ("cairn", ["status", "--ps_hosts=a:1", "--ps-hosts=b:1"], "--ps_hosts"),
            ("cairn", ["var", "list", "--timeout=1", "--timeout=2"], "--timeout"),
            ("cairn-worker", ["--shuffle", "--noshuffle"], "--shuffle"),
            ("cairn-ps", ["--task_index=0", "--task_index=1"], "--task_index"),
        ):
            with self.subTest(flag):
                self.assert_refused(self.run_to_end(program, *arguments), f"{flag} is given more than once")

    def test_an_empty_value_is_refused(self):
        for arguments in (["--train_dir", ""], ["--train_dir=", "--epochs=1"], ["--summary="], ["--sync_replicas="]):
            with self.subTest(arguments):
                flag = arguments[0].split("=")[0]
                self.assert_refused(self.train(MLP, *arguments), f"{flag}: the value is empty")
        self.assert_refused(self.train(MLP, "--train_dir", "--epochs=1"), "--train_dir needs a value before --epochs=1")
        self.assertEqual(os.listdir(self.directory), [])


class OutputTest(IntegrationTest):

    def run_shell(self, command, **options):
        return subprocess.run(["bash", "-c", command], env={**os.environ, "PATH": f"{BIN_DIR}:{os.environ['PATH']}"},
                              cwd=self.directory, capture_output=True, text=True, timeout=TIME_LIMIT, **options)

    def test_output_that_cannot_be_written_is_a_failure(self):
        for command in (f"cairn model {MLP}", "cairn version", "cairn --help", "cairn train --help", "cairn-ps --version",
                        "cairn cluster generate", "cairn devices", "cairn status --ps_hosts=127.0.0.1:1"):
            with self.subTest(command):
                run = self.run_shell(f"{command} >/dev/full")
                self.assertEqual(run.returncode, FAILURE, run.stderr)
                self.assertRegex(run.stderr, "^cairn.*: cannot write to standard output: No space left on device\n$")
        self.assertEqual(self.run_shell("cairn version >&-").returncode, FAILURE)

    def test_a_result_that_cannot_be_written_fails_the_job(self):
        run = self.run_shell(f"cairn train {MLP} --data_dir {small_data()} --threads=1 --epochs=1 >/dev/full")
        self.assertEqual(run.returncode, FAILURE, run.stderr)
        self.assertIn("the result: cannot write to standard output: No space left on device", run.stderr)

    def test_training_continues_when_the_reader_of_its_output_exits(self):
        run = self.run_shell(f"cairn train {MLP} --data_dir {small_data()} --threads=1 --display_every=1 --summary=s.json "
                             "| head -n 1")
        self.assertEqual(run.stdout, "Epoch 1/1\n")
        self.assertEqual(read_summary(self.directory / "s.json")["epochs"], 1)

    def test_results_can_be_written_to_a_device_file(self):
        run = self.train(MLP, "--epochs=1", "--summary=/dev/null")
        self.assert_exit(DONE, run)
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())

    def test_paths_of_results_are_checked_before_training(self):
        for flag, path in (("--summary", "/nonexistent/x"), ("--export_dir", "/dev/null/x"), ("--train_dir", "/dev/null/x"),
                           ("--save_best", "/nonexistent/x.safetensors"), ("--trace_file", "/nonexistent/x")):
            with self.subTest(flag):
                self.assert_refused(self.train(MLP, flag, path), f"cairn train: {flag}: ")
        self.assert_refused(self.run_to_end("cairn", "digits", "/dev/null/x"), "DIR: /dev/null is not a directory")


class SignalTest(IntegrationTest):

    def start_long(self, *flags, ignored=False):
        prefix = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"] if ignored else []
        command = [*prefix, BIN_DIR / "cairn", "train", MLP, "--data_dir", small_data(), "--threads=1", "--epochs=10000",
                   "--display_every=1", "--sync_replicas", *flags]
        run = self.start("/usr/bin/env", *command)
        self.assert_says(run, "^ 3/63 - ")
        return run

    def test_sighup_stops_a_run_in_order(self):
        run = self.start_long()
        run.signal(signal.SIGHUP)
        self.assert_exit(TERMINATED, run)
        self.assert_nothing_runs()

    def test_an_ignored_sighup_stays_ignored_by_every_task(self):
        run = self.start_long(ignored=True)
        for pid in self.marked():
            os.kill(pid, signal.SIGHUP)
        seen = run.stdout.count("\n")
        deadline = time.monotonic() + TIME_LIMIT
        while run.stdout.count("\n") < seen + 20 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertGreaterEqual(run.stdout.count("\n"), seen + 20)
        run.signal(signal.SIGTERM)
        self.assert_exit(TERMINATED, run)
        self.assertNotIn("SIGHUP", run.stderr)

    def test_ctrl_c_reports_what_was_saved(self):
        run = self.start_long("--train_dir=run")
        run.signal(signal.SIGINT)
        self.assert_exit(INTERRUPTED, run)
        self.assertRegex(run.stderr, r"stopped at step \d+; saved in run: the same command resumes the job from there")
        run = self.start_long()
        run.signal(signal.SIGINT)
        self.assert_exit(INTERRUPTED, run)
        self.assertIn("nothing is saved without --train_dir", run.stderr)


class TerminalTest(IntegrationTest):

    def test_progress_lines_fit_the_terminal_even_when_it_shrinks(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        command = [BIN_DIR / "cairn", "train", MLP, "--data_dir", small_data(), "--threads=1", "--epochs=2", "--batch_size=4",
                   "--metrics=accuracy,sparse_top_k_categorical_accuracy", "--sync_replicas"]
        run = subprocess.Popen(list(map(str, command)), stdin=theirs, stdout=theirs, stderr=theirs,
                               env={**os.environ, harness.MARK: self.mark}, cwd=self.directory)
        os.close(theirs)
        text, deadline = b"", time.monotonic() + TIME_LIMIT
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    text += os.read(ours, 65536)
                except OSError:  # all have closed it
                    break
        self.assertEqual(run.wait(TIME_LIMIT), DONE, text.decode())
        plain = re.sub(r"\x1b\[[0-9;]*[mK]", "", text.decode())
        self.assertRegex(plain, r"watch this job: cairn status --watch --ps_hosts=127.0.0.1:\d+")
        redrawn = re.findall(r"\r([^\r\n]*)(?=\r)(?!\r\n)", plain)
        self.assertTrue(redrawn)
        self.assertLess(max(map(len, redrawn)), 80)


class ResumeTest(IntegrationTest):

    def test_an_epoch_stopped_during_evaluation_has_a_row_in_the_log(self):
        flags = [MLP, "--epochs=2", "--sync_replicas", "--train_dir=run"]
        # Validation is long here, so that the stop happens during it.
        data = self.directory / "data"
        self.assert_exit(DONE, self.run_to_end("cairn", "digits", data, "--train=64", "--validation=60000"))
        run = self.start("cairn", "train", *flags, "--data_dir", data, "--threads=1", "--display_every=1")
        self.assert_says(run, "^1/2 - ")
        time.sleep(0.2)
        run.signal(signal.SIGINT)
        self.assert_exit(INTERRUPTED, run)
        self.assert_exit(DONE, self.run_to_end("cairn", "train", *flags, "--data_dir", data, "--threads=1"))
        with open(self.directory / "run/log.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["epoch"] for row in rows], ["0", "1"])
        for row in rows:
            self.assertTrue(row["val_loss"] and row["val_accuracy"], rows)

    def test_the_error_for_another_model_names_the_difference(self):
        self.assert_exit(DONE, self.train(MLP, "--epochs=1", "--train_dir=run"))
        model = json.loads(re.sub("//.*", "", MLP.read_text()))
        for layer in model["config"]["layers"]:
            if layer["class_name"] == "Dense" and layer["config"]["units"] != 10:
                layer["config"]["units"] += 1
        other = self.directory / "other.json"
        other.write_text(json.dumps(model))
        run = self.train(other, "--epochs=2", "--train_dir=run")
        self.assert_exit(INCOMPATIBLE, run)
        self.assertRegex(run.stderr, r"has another model: '\S+' is \[[\d,]+\] here, \[[\d,]+\] there")

    def test_a_finished_run_reports_no_rate(self):
        flags = [MLP, "--epochs=1", "--sync_replicas", "--train_dir=run"]
        self.assert_exit(DONE, self.train(*flags))
        again = self.train(*flags)
        self.assert_exit(DONE, again)
        self.assertRegex(again.stdout, "63 steps, 2000 examples, all in earlier runs: val_accuracy")


class JobTest(IntegrationTest):

    def test_cancelling_a_job_without_workers_ends_its_servers(self):
        cluster = Cluster(self, ps=2, workers=1)
        tasks = cluster.start_all("--model", MLP, "--epochs=10000", "--sync_replicas", "--display_every=1")
        self.assert_says(tasks["worker/0"], "^ 3/63 - ")
        hosts = cluster.by_flags("ps", 0)[0]
        setting = ["cairn", "var", "set", "dense/bias", ",".join(["0"] * self.bias_size(hosts)), *hosts]
        refused = self.run_to_end(*setting)
        self.assert_exit(FAILURE, refused)
        self.assertRegex(refused.stderr, r"'dense/bias' is not set: job [0-9a-f]{16} is training, at step \d+.*--force sets")
        self.assert_exit(DONE, self.run_to_end(*setting, "--force"))
        tasks["worker/0"].signal(signal.SIGKILL)
        tasks["worker/0"].wait(TIME_LIMIT)
        cancelled = self.run_to_end("cairn", "job", "cancel", *hosts)
        self.assert_exit(DONE, cancelled)
        self.assertRegex(cancelled.stdout, r"ps/0 at \S+: job [0-9a-f]{16} cancelled at step \d+\nps/1 at ")
        self.assert_exit(DONE, tasks["ps/0"], tasks["ps/1"])
        gone = self.run_to_end("cairn", "job", "cancel", *hosts)
        self.assert_exit(RETRYABLE, gone)
        self.assertRegex(gone.stderr, "ps/0 at .*: connection refused")

    def test_the_workers_of_a_cancelled_job_report_who_cancelled_it(self):
        for flags in ([], ["--ps_replication=1"]):
            cluster = Cluster(self, ps=2, workers=2)
            tasks = cluster.start_all("--model", MLP, "--epochs=10000", "--sync_replicas", "--display_every=1",
                                      "--train_dir=run", "--resume=never", *flags)
            self.assert_says(tasks["worker/0"], "^ 3/32 - ")
            cancelled = self.run_to_end("cairn", "job", "cancel", *cluster.by_flags("ps", 0)[0])
            self.assert_exit(DONE, cancelled)
            self.assert_exit(FAILURE, tasks["worker/0"], tasks["worker/1"])
            self.assert_exit(DONE, tasks["ps/0"], tasks["ps/1"])
            for worker in (tasks["worker/0"], tasks["worker/1"]):
                self.assertRegex(worker.stderr, r"the job was cancelled by \S+@\S+ \(`cairn job cancel`\)")
            self.assertFalse((self.directory / "run/checkpoint").exists(), "nothing is saved")

    def test_cancel_reports_a_server_without_a_job(self):
        cluster = Cluster(self, ps=1, workers=1)
        server = cluster.start("ps", 0)
        self.assert_says(server, "Started server")
        empty = self.run_to_end("cairn", "job", "cancel", *cluster.by_flags("ps", 0)[0])
        self.assert_exit(DONE, empty)
        self.assertRegex(empty.stdout, "ps/0 at .* has no job")

    def test_an_unknown_subcommand_is_refused_with_the_known_ones(self):
        self.assert_refused(self.start("cairn", "job", "stop"), "cairn job: unknown subcommand 'stop'; known: cancel")
        self.assert_refused(self.start("cairn", "job"), "cairn job: a subcommand is missing: cancel")

    def bias_size(self, hosts):
        listed = self.run_to_end("cairn", "var", "list", *hosts)
        return int(re.search(r"^dense/bias\t\[(\d+)\]", listed.stdout, re.MULTILINE).group(1))

    def test_an_evaluator_evaluates_each_checkpoint_and_ends_with_the_job(self):
        config = {"cluster": {"chief": ["localhost:1"], "ps": ["localhost:2"], "worker": ["localhost:3"]},
                  "task": {"type": "evaluator", "index": 0}}
        flags = ["--model", MLP, "--data_dir", small_data(), "--threads=1", "--train_dir=run"]
        evaluator = self.start("cairn-worker", *flags, env={"TF_CONFIG": json.dumps(config)})
        trained = self.train(MLP, "--epochs=2", "--sync_replicas", "--train_dir=run", "--save_steps=63", "--summary=s.json")
        self.assert_exit(DONE, trained)
        self.assert_exit(DONE, evaluator)
        lines = evaluator.stdout.splitlines()
        summary = read_summary(self.directory / "s.json")
        self.assertEqual(lines[-1], f"step 126 - accuracy: {summary['val_accuracy']:.4f} - loss: {summary['val_loss']:.4f}")
        self.assertTrue(list((self.directory / "run/eval").glob("events.out.tfevents.*")))
        refused = self.start("cairn-worker", *flags[:-1], env={"TF_CONFIG": json.dumps(config)})
        self.assert_refused(refused, "--train_dir is missing: an evaluator evaluates the checkpoints in it")

    def test_a_server_waits_until_its_predecessor_frees_the_port(self):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        flags = [f"--ps_hosts=127.0.0.1:{port}", "--job_name=ps", "--task_index=0"]
        first = self.start("cairn-ps", *flags)
        self.assert_says(first, "Started server")
        second = self.start("cairn-ps", *flags)
        self.assert_says(second, "is in use; waiting up to 10 s")
        first.signal(signal.SIGTERM)
        self.assert_says(second, "Started server")

    def test_a_worker_waits_until_its_predecessor_frees_the_ports(self):
        with socket.create_server(("127.0.0.1", 0)) as peers, socket.create_server(("127.0.0.1", 0)) as pages:
            port, page = peers.getsockname()[1], pages.getsockname()[1]
            worker = self.start("cairn-worker", "--mode=allreduce", f"--worker_hosts=127.0.0.1:{port}", "--job_name=worker",
                                "--task_index=0", "--model", MLP, "--data_dir", small_data(), "--threads=1", "--epochs=1",
                                f"--metrics_port={page}", "--metrics_host=127.0.0.1")
            self.assert_says(worker, f"0.0.0.0:{port} is in use; waiting up to 10 s")
            peers.close()
            self.assert_says(worker, f"127.0.0.1:{page} is in use; waiting up to 10 s")
            pages.close()
            self.assert_says(worker, "status at http://127.0.0.1")
        self.assert_exit(DONE, worker)

    def test_check_recognises_a_port_that_speaks_http(self):
        server = self.start("/usr/bin/env", "python3", "-u", "-m", "http.server", "0", "--bind", "127.0.0.1")
        self.assert_says(server, r"port \d+")
        port = re.search(r"port (\d+)", server.stdout + server.stderr).group(1)
        check = self.run_to_end("cairn", "check", f"--ps_hosts=127.0.0.1:{port}", "--worker_hosts=127.0.0.1:1")
        self.assert_exit(FAILURE, check)
        self.assertRegex(check.stdout, "ps/0 .*FAULT .*it speaks HTTP/1 or another protocol, and is not cairn-ps")

    def test_check_reports_a_misspelt_job_name(self):
        path = self.directory / "cluster.json"
        path.write_text(json.dumps({"ps": ["127.0.0.1:1"], "wroker": ["127.0.0.1:2"]}))
        check = self.run_to_end("cairn", "check", f"--cluster={path}", "--timeout=0.1")
        self.assertRegex(check.stdout, 'FAULT +"wroker" is not a known job and is ignored; did you mean "worker"')


class GeneratedFilesTest(IntegrationTest):
    """Arguments after -- reach cairn-worker unchanged, through every format."""

    def generate(self, form, *flags):
        run = self.run_to_end("cairn", "cluster", "generate", "--format", form, "--workers=1", "--", *flags)
        self.assert_exit(DONE, run)
        return run.stdout

    def groups(self):
        """Three flags at a time, so that few programs are started."""
        for first in range(0, len(ODD_NAMES), 3):
            yield [f"--{flag}={name}" for flag, name in zip(("label_column", "init_from", "resume"), ODD_NAMES[first:first + 3])]

    @unittest.skipIf(yaml is None, "needs python3-yaml")
    def test_yaml_preserves_all_arguments(self):
        def compose(file):  # as Compose substitutes
            words = yaml.safe_load(file)["services"]["worker0"]["entrypoint"]
            return [re.sub(r"\$(\$|\{)", lambda m: "$" if m[1] == "$" else self.fail(m.string), word)
                    for word in words if "CAIRN_" not in word]

        def kubernetes(file):  # as kubelet expands
            chief = next(d for d in yaml.safe_load_all(file) if d["kind"] == "Job")
            words = chief["spec"]["template"]["spec"]["containers"][0]["command"]
            return [re.sub(r"\$(\$|\()", lambda m: "$" if m[1] == "$" else "<expanded>", word) for word in words]

        for form, words_of in (("compose", compose), ("kubernetes", kubernetes)):
            for flags in self.groups():
                with self.subTest(f"{form} {flags!r}"):
                    self.assertEqual([word for word in words_of(self.generate(form, *flags)) if word in flags], flags)

    def test_the_shell_script_preserves_all_arguments_locally_and_over_ssh(self):
        programs = self.directory / "bin"
        programs.mkdir()
        seen = self.directory / "seen"
        for name, body in (("cairn-ps", "exit 0"), ("cairn-worker", f'printf "%s\\0" "$@" >{shlex.quote(str(seen))}'),
                           # Like sshd, this passes the last argument to a POSIX shell.
                           ("ssh", 'for last; do :; done; exec sh -c "$last"')):
            (programs / name).write_text(f"#!/bin/sh\n{body}\n")
            (programs / name).chmod(0o755)
        for host in ("localhost", "elsewhere"):
            for flags in self.groups():
                with self.subTest(f"{host} {flags!r}"):
                    run = self.run_to_end("cairn", "cluster", "generate", "--format=shell", "--workers=1", f"--hosts={host}",
                                          "--", *flags)
                    script = self.directory / "run.sh"
                    script.write_text(run.stdout)
                    subprocess.run(["bash", script], check=True, cwd=self.directory, timeout=TIME_LIMIT,
                                   env={**os.environ, "CAIRN_BIN_DIR": "", "PATH": f"{programs}:{os.environ['PATH']}"})
                    self.assertEqual([word for word in seen.read_text().split("\0") if word in flags], flags)

    def test_names_that_look_like_other_yaml_types_stay_strings(self):
        for name in ("yes", "null", "on"):
            run = self.run_to_end("cairn", "cluster", "generate", "--format=kubernetes", "--name", name)
            self.assert_exit(DONE, run)
            self.assertIn(f"  name: '{name}'\n", run.stdout)
        for flags in (["--image", "a b"], ["--tag", "x}"], ["--data_claim", "a: b"]):
            self.assert_refused(self.run_to_end("cairn", "cluster", "generate", "--format=kubernetes", *flags), f"{flags[0]}: ")


if __name__ == "__main__":
    harness.main()
