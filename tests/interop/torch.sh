#!/usr/bin/env bash
# PyTorch models on Cairn's servers: installs Debian's PyTorch (with what it needs, 168 packages) and runs torch_test.py.
# Not part of ctest: it needs the network, once. Ends with 77 where PyTorch cannot be installed.
#   tests/interop/torch.sh [BIN_DIR]     the programs [build/release/bin]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CAIRN_BIN_DIR=$(realpath "${1-$root/build/release/bin}")
export CAIRN_BIN_DIR

packages=(python3-torch python3-grpcio python3-numpy openssl)
if ! dpkg-query --show "${packages[@]}" >/dev/null 2>&1; then
  as_root=()
  if [[ $(id -u) != 0 ]]; then as_root=(sudo); fi
  if ! timeout 900 "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends "${packages[@]}" >/dev/null; then
    echo "SKIPPED: apt-get cannot install ${packages[*]}" >&2
    exit 77
  fi
fi
exec timeout 900 /usr/bin/python3 -B "$root/tests/interop/torch_test.py"
