"""The commands of README.md and docs/guides, run as they stand: a page's blocks in their order, in one directory.

A block of Python that begins with "# NAME.py" is the file of this name, the first other one train.py.

The directory looks as a reader's does: the repository's deploy/, the built programs on PATH, and data in ~/mnist. The
hosts of a page are this machine, with a port for each task, and a command that ends in "# on HOST" runs beside the
others of its block. NOT_RUN lists what is not run, SHORTER what runs on fewer examples. AROUND has what a page assumes
to exist already.
"""

import gzip
import os
import pathlib
import re
import shutil
import socket
import subprocess
import unittest
from typing import Dict, List, NamedTuple, Set, Tuple

from harness import BIN_DIR, REPOSITORY, IntegrationTest, Process, main, make_digits, small_data

PAGES = ["README.md", *sorted(f"docs/guides/{page.name}" for page in (REPOSITORY / "docs/guides").glob("*.md"))]
TIME_LIMIT = 240  # seconds for one page

# Where the Python package is in the build, and the folder of its interpreter; both empty if it was not built.
PACKAGE = os.environ.get("CAIRN_PYTHON_PACKAGE", "")
PYTHON_DIR = os.environ.get("CAIRN_PYTHON_DIR", "")

# Pages with a job that must run for some seconds, which takes as many examples as MNIST has.
LARGE = {"docs/guides/monitoring.md"}

# Beginnings of commands that are not run, and why.
NOT_RUN = {
    "deploy/quickstart.sh": "installs packages; for a bare machine",
    "tests/run.sh": "runs this test",
    "cmake ": "deploy.packaging installs the build",
    "(cd build/release && cpack)": "deploy.packaging packs the build",
    "pip install ": "needs a package index",
    "deploy/setup.sh": "installs packages",
    "python=$(tests/python/environment.sh)": "python.wheel builds the wheel",
    "$python python/build_wheel.py": "the same",
    "twine ": "needs a package index",
    "tests/bench/movielens.sh ": "needs a package index; FEW_RATINGS takes the place of its files",
    "mkdir -p ~/mnist && cp build/data/mnist.npz": "for those whose data deploy/quickstart.sh downloaded",
    "docker ": "needs a container engine, as compose_test.py does",
    "docker-compose ": "needs a container engine, as compose_test.py does",
    "CAIRN_DATA=": "needs a container engine, as compose_test.py does",
    "time cairn predict DIR/gpt2.keras": "reads what tests/bench/generation_keras.py writes with keras_hub",
    "python3 ray_train.py": "Ray is large; python.ray runs the program where it is installed",
    "kubectl ": "needs a Kubernetes cluster; deploy.manifests checks the files",
}

# Beginnings of commands that train long enough for the figures of their page, and flags with which they are short.
SHORTER = {
    "cairn train deploy/examples/char_gpt.json": "--limit_examples 64",
    "cairn train sentiment.json": "--limit_examples 640",
    "cairn train deploy/examples/entities.json": "--limit_examples 320",
    "cairn train deploy/examples/translation.json": "--limit_examples 320",
    "cairn train deploy/examples/unet.json": "--limit_examples 64",
}

# A page's hosts, with the port that stands for each on this machine.
HOSTS = {"ps0:2222": "localhost:2222", "ps1:2222": "localhost:2223", "host0:2222": "localhost:2224",
         "host1:2222": "localhost:2225"}
PORTS = [*range(2222, 2226), 2322, *range(9300, 9304)]

CLUSTER = """\
cat > cluster.json <<END
{"ps": ["localhost:2222", "localhost:2223"], "worker": ["localhost:2224", "localhost:2225"]}
END
"""
SMALL_CLUSTER = """\
cat > cluster.json <<END
{"ps": ["localhost:2222"], "worker": ["localhost:2224"]}
END
"""
SERVERS = """\
for task in 0 1; do cairn-ps --cluster cluster.json --job_name ps --task_index $task & done
"""
UP = """\
for (( i = 0; i < 300; ++i )); do cairn health localhost:2222 && cairn health localhost:2223 && break; sleep 0.2; done
"""
# Workers that train until their job is cancelled or they are killed.
WORKERS = """\
for task in 0 1; do
  cairn-worker --cluster cluster.json --job_name worker --task_index $task --sync_replicas --epochs 1000000 \\
      --model deploy/examples/mnist_mlp.json --data_dir ~/mnist --threads 1 >worker.log &
done
for (( i = 0; i < 300; ++i )); do
  cairn health localhost:2222 --service ready 2>health.log && cairn status --cluster cluster.json >status.log && break
  sleep 0.2
done
"""
RUN = "cairn train deploy/examples/mnist_mlp.json --data_dir ~/mnist --sync_replicas --train_dir run\n"
TIMELINES = """\
cairn-ps --ps_hosts localhost:2222,localhost:2223 --job_name ps --task_index 0 --trace_file ps0.json &
cairn-ps --ps_hosts localhost:2222,localhost:2223 --job_name ps --task_index 1 --trace_file ps1.json &
for task in 0 1; do
  cairn-worker --ps_hosts localhost:2222,localhost:2223 --worker_hosts localhost:2224,localhost:2225 \\
      --job_name worker --task_index $task --model deploy/examples/mnist_mlp.json --data_dir ~/mnist \\
      --trace_file worker$task.json &
done
"""
FEW_RATINGS = r"""
mkdir ml-100k
awk 'BEGIN { OFS = "\t"; print "user_id:token", "age:token", "gender:token", "occupation:token"
  for (u = 1; u <= 50; ++u) print u, 20 + u, u % 2 ? "F" : "M", "job" u % 5 }' >ml-100k/ml-100k.user
awk 'BEGIN { OFS = "\t"; print "item_id:token", "movie_title:token_seq", "class:token_seq"
  for (i = 1; i <= 40; ++i) print i, "Film " i, i % 3 ? "Drama War" : "Comedy" }' >ml-100k/ml-100k.item
for set in train:1000 test:300; do
  awk -v rows=${set#*:} 'BEGIN { OFS = "\t"; print "user_id:token", "item_id:token", "rating:float"
    for (r = 0; r < rows; ++r) print int(1 + 50 * rand()), int(1 + 40 * rand()), int(1 + 5 * rand()) }' \
    >ml-100k/${set%:*}.inter
done
"""
END = 'for job in $(jobs -p); do wait "$job"; done\ndisown -a\n'  # fails with the first task that failed
STOP = "kill $(jobs -p)\nwait\ndisown -a\n"  # a job that was waited for may stay in the list of jobs


class Around(NamedTuple):
    """Commands before and after a block."""
    before: str = ""
    after: str = END
    background: bool = False  # the block is a server that runs until `after` ends it


# [page, beginning of a block]
AROUND: Dict[Tuple[str, str], Around] = {
    ("docs/guides/cluster.md", "cairn check"): Around(before=SERVERS + UP, after=STOP),
    ("docs/guides/cluster.md", "cairn-worker --job_name evaluator"): Around(before=RUN),
    ("docs/guides/cluster.md", "cairn status"): Around(before=SERVERS + WORKERS, after="wait\ndisown -a\n"),
    ("docs/guides/models-and-data.md", "cairn train deploy/examples/mnist_mlp.json"): Around(before=RUN),
    ("docs/guides/monitoring.md", "cairn status"): Around(before=CLUSTER + SERVERS + WORKERS, after=STOP),
    ("docs/guides/monitoring.md", "cairn health"): Around(before=SERVERS + WORKERS, after=STOP),
    ("docs/guides/pip.md", "python3 -m venv"): Around(before="cp deploy/examples/mnist_mlp.json mlp.json\n"),
    ("docs/guides/profiling.md", "cairn trace merge"): Around(before=TIMELINES + END),
    ("docs/guides/pytorch-tables.md", "tests/bench/movielens.sh"): Around(before=FEW_RATINGS),
    ("docs/guides/recommenders.md", "cairn train deploy/examples/movielens.json"): Around(before=FEW_RATINGS),
    ("docs/guides/tls.md", "openssl"): Around(before=SMALL_CLUSTER),
    ("docs/guides/transports.md", "cairn-ps"): Around(
        before=SMALL_CLUSTER, background=True,
        after="for (( i = 0; i < 300; ++i )); do cairn health localhost:2222 && break; sleep 0.2; done\n" + STOP),
    ("docs/guides/troubleshooting.md", "cairn check"): Around(before=CLUSTER + SERVERS + WORKERS, after=STOP),
}


class Block(NamedTuple):
    line: int  # of its first line
    language: str
    text: str


def blocks_of(text: str) -> List[Block]:
    blocks, fence = [], None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("```"):
            continue
        if fence is None:
            fence = (number, line[3:].strip())
        else:
            first, language = fence
            blocks.append(Block(first + 1, language, "\n".join(text.splitlines()[first:number - 1]) + "\n"))
            fence = None
    return blocks


def commands_of(block: str) -> List[str]:
    """A block's commands: one or more lines each, joined where a line ends in a backslash or begins a here document."""
    commands, end = [], ""
    for line in block.splitlines():
        if commands and (end or commands[-1].endswith("\\")):
            commands[-1] += "\n" + line
        else:
            commands.append(line)
        if end:
            end = "" if line == end else end
        elif here := re.search(r"<<(\w+)", line):
            end = here[1]
    return commands


def script_of(page: str, text: str, used: Set[object]) -> str:
    """A bash script of the page's blocks. Adds to `used` the keys of NOT_RUN, SHORTER and AROUND that it met."""
    script = ["set -euo pipefail\n", "trap 'echo \"failed: $BASH_COMMAND\" >&2' ERR\n",
              "trap 'kill $(jobs -p) 2>kill.log || true' EXIT\n"]  # what a failed block has started
    for block in blocks_of(text):
        # The first program of a page is train.py; others begin with their name.
        name = re.match(r"# (\w+\.py)\n", block.text)
        if block.language == "python" and (name or not any("train.py" in part for part in script)):
            script.append(f"cat > {name[1] if name else 'train.py'} <<'END'\n{block.text}END\n")
        if block.language != "sh":
            continue
        commands = []
        for command in commands_of(block.text):
            left_out = next((start for start in NOT_RUN if command.startswith(start)), None)
            if left_out is not None:
                used.add(left_out)
                continue
            shorter = next((start for start in SHORTER if command.startswith(start)), None)
            if shorter is not None:
                used.add(shorter)
                command += " " + SHORTER[shorter]
            commands.append(re.sub(r" +# on \w+$", " &", command))
        if not commands:
            continue
        around = Around()
        for key, value in AROUND.items():
            if key[0] == page and block.text.startswith(key[1]) and key not in used:
                used.add(key)
                around = value
        text_run = "\n".join(commands) + (" &\n" if around.background else "\n")
        for host, here in HOSTS.items():
            text_run = text_run.replace(f'"{host}"', f'"{here}"')
        script.append(f"echo '== {page}:{block.line}' >&2\n{around.before}{text_run}{around.after}")
    return "".join(script)


def taken_ports() -> List[int]:
    taken = []
    for port in PORTS:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                taken.append(port)
    return taken


class GuidesTest(IntegrationTest):

    def run_page(self, page: str) -> Process:
        script = script_of(page, (REPOSITORY / page).read_text(encoding="utf-8"), set())
        if ".py <<'END'" in script and not PACKAGE:
            self.skipTest("the Python package was not built: CAIRN_BUILD_PYTHON")
        if "curl" in script and shutil.which("curl") is None:
            self.skipTest("curl is not installed")
        if taken := taken_ports():
            self.skipTest(f"another program uses the port {taken[0]} of the guides")
        root, home = self.directory / "cairn", self.directory / "home"
        shutil.copytree(REPOSITORY / "deploy", root / "deploy")
        (root / "build/release").mkdir(parents=True)
        (root / "build/release/bin").symlink_to(BIN_DIR)
        (home / "mnist").mkdir(parents=True)
        if page in LARGE:
            make_digits(home / "mnist", train=60000)
        else:
            for file in small_data().iterdir():
                (home / f"mnist/{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), 1))
        (root / "page.sh").write_text(script, encoding="utf-8")
        run = self.start_command(["bash", "page.sh"], cwd=root, env={
            "HOME": str(home), "PATH": f"{BIN_DIR}:{PYTHON_DIR}:{os.environ['PATH']}", "PYTHONPATH": PACKAGE,
            "TMPDIR": str(self.directory)})
        self.assert_exit(0, run, seconds=TIME_LIMIT)
        return run

    def test_every_exception_is_needed(self):
        used: Set[object] = set()
        for page in PAGES:
            script_of(page, (REPOSITORY / page).read_text(encoding="utf-8"), used)
        self.assertEqual(used, {*NOT_RUN, *SHORTER, *AROUND})

    def test_a_command_that_fails_is_found(self):
        directory = pathlib.Path(self.directory)
        for text, fails in (("true\n", False), ("cairn check --no_such_flag\n", True), ("cairn status &\ntrue\n", True)):
            script = script_of("page.md", f"```sh\n{text}```\n", set())
            (directory / "page.sh").write_text(script, encoding="utf-8")
            run = self.start_command(["bash", "page.sh"], env={"PATH": f"{BIN_DIR}:{os.environ['PATH']}"})
            self.assertTrue(run.wait(30))
            self.assertEqual(run.code != 0, fails, run.story())


def add_page(page: str) -> None:
    def test(self: GuidesTest) -> None:
        self.run_page(page)

    name = re.sub(r"\W", "_", page.removeprefix("docs/guides/").removesuffix(".md").lower())
    setattr(GuidesTest, f"test_{name}", test)


for each in PAGES:
    add_page(each)

if __name__ == "__main__":
    main()
