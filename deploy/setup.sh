#!/usr/bin/env bash
# Installs the build dependencies of Cairn on Debian 12. Prints nothing if all of them are installed.
#   deploy/setup.sh                dependencies of the programs
#   deploy/setup.sh --with-tests   and those of the tests, with Python packages from PyPI in ~/.cache/cairn
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkgconf git ca-certificates
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libssl-dev openssl
  nlohmann-json3-dev libcli11-dev libspdlog-dev zlib1g-dev
  libzip-dev zipcmp zipmerge ziptool # libzip's CMake package requires its tools
  libdnnl-dev libmicrohttpd-dev libhdf5-dev libpng-dev libjpeg62-turbo-dev
)
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev clang-19 clang-format-19 libclang-rt-19-dev libomp-19-dev mold
  python3 python3-dev python3-venv python3-grpcio python3-numpy python3-yaml spin universal-ctags dpkg-dev file curl
)

with_tests=false
case "${1-}" in
  "") ;;
  --with-tests)
    packages+=("${test_packages[@]}")
    with_tests=true
    ;;
  *)
    echo "usage: deploy/setup.sh [--with-tests]" >&2
    exit 2
    ;;
esac

if ! command -v apt-get >/dev/null; then
  echo "setup: this is no Debian; install the counterparts of: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -gt 0 ]]; then
  as_root=()
  if [[ $(id -u) != 0 ]]; then
    if ! command -v sudo >/dev/null; then
      echo "setup: neither root nor sudo; ask for: apt-get install ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi

  echo "setup: installing ${#missing[@]} packages: ${missing[*]}" >&2
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  if ! { "${as_root[@]}" apt-get update &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}"; } \
    >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: apt-get failed" >&2
    exit 1
  fi
fi

if $with_tests; then
  # Prints the path of an interpreter, which tests/run.sh asks for too.
  "$(dirname "${BASH_SOURCE[0]}")/../tests/python/environment.sh" >/dev/null
fi
