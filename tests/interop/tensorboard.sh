#!/usr/bin/env bash
# A run's files in TensorBoard, installed from PyPI into a virtual environment that is kept between runs. Not part of
# ctest: it needs the network. Ends with 0 when all agree, 77 where nothing can be installed.
#   tests/interop/tensorboard.sh [BIN_DIR]     the programs [build/release/bin]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=$(realpath "${1-$root/build/release/bin}")
venv=$root/build/interop-venv
packages=(tensorboard==2.21.0)

if [[ $("$venv/bin/pip" freeze 2>/dev/null) != *"${packages[0]}"* ]]; then
  mkdir -p "$root/build"
  if ! { python3 -m venv "$venv" && timeout 300 "$venv/bin/pip" install --quiet "${packages[@]}"; }; then
    rm -rf "$venv"
    echo "SKIPPED: tensorboard cannot be installed here" >&2
    exit 77
  fi
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
timeout 60 "$bin/cairn" digits "$work/data" --train 600 --validation 200 >/dev/null
train() {
  timeout 120 "$bin/cairn" train "$root/deploy/examples/mnist_mlp.json" --data_dir "$work/data" --workers 2 --sync_replicas \
    --batch_size 30 --threads 1 --train_dir "$work/run" --histogram_freq 1 --update_freq 4 "$@"
}
train --epochs 2 --summary "$work/first.json" >"$work/out"
train --epochs 4 --summary "$work/second.json" >>"$work/out" # resumes
timeout 120 "$venv/bin/python" "$root/tests/interop/tensorboard_check.py" "$work/run" "$work/second.json" "$work/out"
