#!/usr/bin/env bash
# Exported models in onnxruntime, installed from PyPI into a virtual environment that is kept between runs. Not part of
# ctest: it needs the network. Ends with 0 when all agree, 77 where nothing can be installed.
#   tests/interop/onnx.sh [BIN_DIR]     the programs [build/release/bin]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=$(realpath "${1-$root/build/release/bin}")
venv=$root/build/onnx-venv
packages=(onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6)

if ! installed=$("$venv/bin/pip" freeze 2>/dev/null) ||
  [[ $(grep -cxF -f <(printf '%s\n' "${packages[@]}") <<<"$installed") != "${#packages[@]}" ]]; then
  mkdir -p "$root/build"
  if ! { python3 -m venv "$venv" && timeout 300 "$venv/bin/pip" install --quiet "${packages[@]}"; }; then
    rm -rf "$venv"
    echo "SKIPPED: onnxruntime cannot be installed here" >&2
    exit 77
  fi
fi
exec timeout 600 "$venv/bin/python" -B "$root/tests/interop/onnx_check.py" "$bin" "$root"
