#!/usr/bin/env bash
# Other programs with Cairn, all of them: TensorBoard, onnxruntime, PyTorch and safetensors, each installed by its own
# script, in versions that are written there. Not part of ctest: it needs the network, and minutes. Ends with
# "N passed, N failed, N skipped", and 77 when all were skipped.
#   tests/interop/run.sh [BIN_DIR]     the programs [build/release/bin]
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
passed=0 failed=0 skipped=0
for check in tensorboard onnx torch; do
  "$here/$check.sh" "$@"
  case $? in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *)
      failed=$((failed + 1))
      echo "failed: $check.sh" >&2
      ;;
  esac
done
echo "$passed passed, $failed failed, $skipped skipped"
if [[ $failed -gt 0 ]]; then exit 1; fi
if [[ $passed -eq 0 ]]; then exit 77; fi
