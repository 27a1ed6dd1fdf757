#!/usr/bin/env bash
# The MNIST CNN on one device after another, side by side.
#   compare.sh DATA_DIR DEVICE...        such as /cpu:0 /gpu:0
# Ends with status 1 when none of the devices could be used, 2 for a usage error.
set -euo pipefail

if [[ $# -lt 2 ]]; then
  echo "usage: $0 DATA_DIR DEVICE..." >&2
  exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${CAIRN_BIN_DIR:-$here/../../../build/release/bin}
data=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The value of a number in a flat JSON object.
field() { sed -n "s/.*\"$2\": *\([0-9.eE+-]*\).*/\1/p" "$1" | head -n 1; }

printf '%-10s %14s %12s %14s\n' device 'seconds/epoch' images/s val_accuracy
used=0
for device in "$@"; do
  if ! "$bin/cairn" train "$here/../mnist_cnn.json" --data_dir "$data" --device "$device" --epochs "${EPOCHS:-2}" \
    --batch_size "${BATCH_SIZE:-64}" --sync_replicas --summary "$work/out.json" >"$work/log" 2>&1; then
    printf '%-10s not used: %s\n' "$device" "$(sed 's/.*cairn-worker: //' "$work/log" | tail -n 1)"
    continue
  fi
  used=$((used + 1))
  awk -v device="$device" -v seconds="$(field "$work/out.json" seconds)" -v epochs="$(field "$work/out.json" epochs)" \
    -v rate="$(field "$work/out.json" examples_per_second)" -v accuracy="$(field "$work/out.json" val_accuracy)" \
    'BEGIN { printf "%-10s %14.2f %12.0f %14.4f\n", device, seconds / epochs, rate, accuracy }'
done
[[ $used -gt 0 ]]
