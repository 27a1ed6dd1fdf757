#!/usr/bin/env bash
# Cairn's models in PyTorch: installs Debian's PyTorch (with what it needs, 168 packages) and safetensors, and runs
# safetensors_check.py. Not part of ctest: it needs the network,
# once. Ends with 77 where they cannot be installed.
#   tests/interop/torch.sh [BIN_DIR]     the programs [build/release/bin]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CAIRN_BIN_DIR=$(realpath "${1-$root/build/release/bin}")
export CAIRN_BIN_DIR

packages=(python3-torch python3-numpy python3-venv)
if ! dpkg-query --show "${packages[@]}" >/dev/null 2>&1; then
  as_root=()
  if [[ $(id -u) != 0 ]]; then as_root=(sudo); fi
  if ! timeout 900 "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends "${packages[@]}" >/dev/null; then
    echo "SKIPPED: apt-get cannot install ${packages[*]}" >&2
    exit 77
  fi
fi

# safetensors, in addition to Debian's PyTorch.
venv=$root/build/safetensors-venv
package=safetensors==0.8.0
if [[ $("$venv/bin/pip" freeze 2>/dev/null) != *"$package"* ]]; then
  mkdir -p "$root/build"
  if ! { /usr/bin/python3 -m venv --system-site-packages "$venv" && timeout 300 "$venv/bin/pip" install --quiet --no-deps "$package"; }; then
    rm -rf "$venv"
    echo "SKIPPED: safetensors cannot be installed here" >&2
    exit 77
  fi
fi
exec timeout 300 "$venv/bin/python" -B "$root/tests/interop/safetensors_check.py" "$CAIRN_BIN_DIR" "$root"
