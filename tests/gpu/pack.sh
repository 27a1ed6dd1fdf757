#!/usr/bin/env bash
# Collects what tests/gpu/run.sh needs on a machine with a card but without gRPC, protobuf or a package registry:
# programs, the CUDA backend, and the shared libraries that they want from this system, stripped, in
# OUTDIR/cairn_gpu.tar.gz. None of NVIDIA's libraries is carried: they are there already, and must fit the driver.
#   tests/gpu/pack.sh OUTDIR [BUILD]    BUILD: a build with CUDA [build/release]
set -euo pipefail

readonly most_megabytes=40
readonly programs=(conformance_test step_bench matrix_power_bench cairn cairn-ps cairn-worker)

if [[ $# -lt 1 || $# -gt 2 || $1 == -* ]]; then
  echo "usage: tests/gpu/pack.sh OUTDIR [BUILD]" >&2
  exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$1 build=${2-$root/build/release}

fail() {
  echo "pack: $*" >&2
  exit 1
}

backend=$(find "$build" -name libcairn_cuda.so -print -quit)
[[ -n $backend ]] || fail "there is no libcairn_cuda.so in $build: built without CUDA?"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/bin" "$tree/lib" "$out"

for program in "${programs[@]}"; do
  [[ -x $build/bin/$program ]] || fail "$build/bin/$program is not built"
  strip -o "$tree/bin/$program" "$build/bin/$program"
done
strip --strip-unneeded -o "$tree/lib/libcairn_cuda.so" "$backend"

# The C and C++ libraries, which every system has and newer ones may replace, and NVIDIA's stay.
readonly staying='^(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcu[a-zA-Z_]+|libnv[a-zA-Z-]+|libnccl)[.-]'
wanted=$(ldd "${programs[@]/#/$build/bin/}" "$backend")
while read -r name path; do
  [[ $name =~ $staying || $path == "$backend" ]] || strip --strip-unneeded -o "$tree/lib/$name" "$path"
done < <(awk '$2 == "=>" && $3 ~ "^/" {print $1, $3}' <<<"$wanted" | sort -u)

tar --create --directory "$tree" bin lib | gzip -6 >"$out/cairn_gpu.tar.gz"
megabytes=$(du --summarize --block-size=1M "$out/cairn_gpu.tar.gz" | cut -f 1)
echo "pack: ${#programs[@]} programs and $(find "$tree/lib" -type f | wc -l) libraries, $megabytes MB, in $out/cairn_gpu.tar.gz"
[[ $megabytes -lt $most_megabytes ]] || fail "that is more than the $most_megabytes MB meant to be carried"
