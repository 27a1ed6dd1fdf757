#!/usr/bin/env bash
# Runs one fuzz target for a while, from its seeds and from inputs that earlier runs in this build directory found.
# Fails if it finds a fault, and then prints the input that causes it, in base64.
#   tests/fuzz/run.sh TARGET SECONDS [LIBFUZZER_OPTION]...
# Writes to the build directory alone: CAIRN_FUZZ_BUILD, or build/dev.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ $# -lt 2 ]]; then
  echo "usage: tests/fuzz/run.sh TARGET SECONDS [LIBFUZZER_OPTION]..." >&2
  exit 2
fi
target=$1 seconds=$2
shift 2

build=${CAIRN_FUZZ_BUILD-$here/../../build/dev}
corpus=$build/corpus/$target
found=$build/found/$target
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cairn-fuzz-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$corpus"
rm -rf "$found" && mkdir -p "$found"

options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512 -max_len=8192 -print_final_stats=1
  -artifact_prefix="$found/")
dict=$here/$target.dict
case $target in
  create | follow | replicate | session | slices) dict=$here/script.dict ;;  # all play scripts
esac
if [[ -f $dict ]]; then options+=(-dict="$dict"); fi

# New inputs go to the first folder alone.
TMPDIR=$scratch UBSAN_OPTIONS=print_stacktrace=1 \
  "$build/bin/fuzz_$target" "${options[@]}" "$@" "$corpus" "$here/seeds/$target" && exit 0

for input in "$found"/*; do
  [[ -f $input ]] || continue
  echo "$input in base64:"
  base64 -w 0 "$input"
  echo
done
exit 1
