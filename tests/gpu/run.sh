#!/usr/bin/env bash
# Everything that needs an NVIDIA card, in one command: the conformance of the CUDA backend, the same under NVIDIA's
# sanitizers, the benchmarks against PyTorch and cuBLAS, clusters whose worker computes on the card, one of them with
# embedding tables, and, where there are two cards, a model on both whose gradients NCCL adds up.
#   tests/gpu/run.sh [--build DIR] [--out DIR] [--only PART,...] [--prefix DIR] [--seconds N]
#     --build DIR    ready-made: what pack.sh wrote, or a build with bin/ in it; else what needs no gRPC is built here
#     --out DIR      ten files at most: summary.txt, and each part's log [build/gpu_results]
#     --only PART    conformance, nccl, bench, train, tables, sanitizer (or half of it: memcheck, racecheck) [all]
#     --prefix DIR   where the build finds Abseil and GoogleTest
#     --seconds N    for all parts together; what does not fit is stopped or left out [570]
# The training part reads MNIST from CAIRN_MNIST_DIR, else generated digits. Every part says "passed", "failed" or
# "skipped" with the reason, and a part that fails stops no other. Ends with status 0 when none failed and one passed,
# 77 where there is no card.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build='' out=$root/build/gpu_results only=conformance,nccl,bench,train,tables,sanitizer prefix='' seconds=570

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}
while [[ $# -gt 0 ]]; do
  [[ $1 =~ ^--(build|out|only|prefix|seconds)$ && $# -ge 2 ]] || usage
  declare "${1#--}=$2"
  shift 2
done
parts=()
for part in ${only//,/ }; do
  case $part in
    sanitizer) parts+=(memcheck racecheck) ;;
    conformance | nccl | memcheck | racecheck | bench | train | tables) parts+=("$part") ;;
    *) usage ;;
  esac
done

if ! cards=$(nvidia-smi -L 2>/dev/null) || [[ $cards != *GPU* ]]; then
  echo "gpu: this machine shows no NVIDIA card (nvidia-smi -L): nothing was run" >&2
  exit 77
fi
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
summary=$out/summary.txt
{
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem --format=csv,noheader
  git -C "$root" log -1 --format='%h %s' 2>/dev/null
} | tee "$summary"

passed=0 failed=0
# report PART passed|failed|skipped [WHY]
report() {
  echo "$1: $2${3:+ ($3)} at +${SECONDS}s" | tee -a "$summary"
  case $2 in
    passed) passed=$((passed + 1)) ;;
    failed) failed=$((failed + 1)) ;;
  esac
}

# limited SECONDS COMMAND...: no longer than that, nor than is left of the whole; 124 when it was stopped.
limited() {
  local limit=$1 left=$((seconds - SECONDS))
  shift
  if [[ $left -lt $limit ]]; then limit=$left; fi
  [[ $limit -gt 0 ]] || return 124
  timeout --kill-after=10 "$limit" "$@"
}
why() {
  if [[ $1 -eq 124 || $1 -eq 137 ]]; then echo "its time was up"; else echo "exit status $1"; fi
}

# The folders that programs find their libraries in: what was packed, and NVIDIA's, for which PyTorch's wheels serve
# where the system lacks cuDNN, cuBLAS or NCCL. Given to our programs alone: Python has libraries of its own.
set_library_path() {
  library_path=$build/lib
  local known
  known=$(ldconfig -p)
  if [[ $known != *libcudnn.so.9* || $known != *libcublas.so* || $known != *libnccl.so.2* ]]; then
    library_path+=$(python3 - <<'PYTHON' 2>/dev/null
import glob, os
try:
    import nvidia
    for root in nvidia.__path__:
        print("".join(":" + folder for folder in sorted(glob.glob(os.path.join(root, "*", "lib")))), end="")
except ImportError:
    pass
PYTHON
    )
  fi
  library_path+=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  ours=(env "LD_LIBRARY_PATH=$library_path") # before each of our programs
}

# Sets `build` to a folder with bin/ in it.
prepare() {
  local log=$out/build.log
  if [[ -n $build && -f $build/cairn_gpu.tar.gz ]]; then
    if tar --extract --gzip --file "$build/cairn_gpu.tar.gz" --directory "$work"; then
      build=$work
      return
    fi
    report build failed "cannot unpack $build/cairn_gpu.tar.gz"
    return 1
  fi
  if [[ -n $build && -d $build/bin ]]; then
    build=$(cd "$build" && pwd)
    return
  fi
  if [[ -n $build ]]; then
    report build failed "there is neither bin/ nor cairn_gpu.tar.gz in $build"
    return 1
  fi
  build=$root/build/gpu
  limited 500 cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCAIRN_KERNELS_ONLY=ON -DCAIRN_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES=native ${prefix:+"-DCMAKE_PREFIX_PATH=$prefix"} >"$log" 2>&1 &&
    limited 500 cmake --build "$build" >>"$log" 2>&1
  local status=$?
  if [[ $status -ne 0 ]]; then
    grep -E -A 6 'error|FAILED|CMake Error' "$log" | head -n 40
    report build failed "$(why $status); all of it in $log"
    return 1
  fi
  report build passed
}

# has PART PROGRAM: else the part is skipped.
has() {
  [[ -x $build/bin/$2 ]] && return
  report "$1" skipped "$2 is not in $build/bin"
  return 1
}

# run_tests PART SECONDS FILTER [skipped]: with the last word no test that ran means that the card, or a second one, is
# lacking, as the tests themselves say.
run_tests() {
  local part=$1 log=$out/$1.log status count
  has "$part" conformance_test || return
  limited "$2" "${ours[@]}" "$build/bin/conformance_test" --gtest_filter="$3" >"$log" 2>&1
  status=$?
  count=$(grep -c '^\[       OK \]' "$log")
  if [[ $status -ne 0 ]]; then
    grep -E -B 8 '^\[  FAILED  \].*ms\)$' "$log" | head -n 60
    tail -n 3 "$log"
    report "$part" failed "$(why $status), $count tests passed, $(grep -c '^\[  FAILED  \].*ms)$' "$log") did not"
  elif [[ $count -gt 0 ]]; then
    report "$part" passed "$count tests"
  elif [[ ${4:-} == skipped ]]; then
    report "$part" skipped "$(grep -m 1 -E 'needed: ' "$log" || echo 'no test was found')"
  else
    report "$part" failed "no test found the card"
  fi
}

run_conformance() { run_tests conformance 200 '*gpu_*'; }
# Tests with two GPUs.
run_nccl() { run_tests nccl 100 'TwoDevices.*/two_gpus' skipped; }

# run_sanitizer TOOL SECONDS OPTIONS...: over as many of the tests as the time allows, in an order that mixes the
# suites; of the precisions those that differ most in their kernels.
run_sanitizer() {
  local tool=$1 limit=$2 log=$out/$1.log status count
  shift 2
  has "$tool" conformance_test || return
  if ! command -v compute-sanitizer >/dev/null; then
    report "$tool" skipped "compute-sanitizer is not on the path"
    return
  fi
  limited "$limit" "${ours[@]}" compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" "$build/bin/conformance_test" \
    --gtest_filter='*gpu_fp32*:*gpu_bf16*' --gtest_shuffle --gtest_random_seed=1 >"$log" 2>&1
  status=$?
  count=$(grep -c '^\[       OK \]' "$log")
  if grep -qE '^=+ (Invalid|Error: Race|Warning: Race|Program hit|Misaligned|Uninitialized|Barrier)|(ERROR|RACECHECK) SUMMARY: [1-9]' "$log"; then
    grep -E -A 12 '^=+ (Invalid|Error|Warning|Program hit|Misaligned)' "$log" | head -n 60
    report "$tool" failed "it found something; $count tests passed"
  elif grep -qE '^\[  FAILED  \]' "$log"; then
    grep -E '^\[  FAILED  \]' "$log" | awk '!seen[$4]++' | head -n 20
    report "$tool" failed "tests failed, $count passed; $(why $status)"
  elif [[ $count -eq 0 ]]; then
    tail -n 5 "$log"
    report "$tool" failed "$(why $status), no test passed"
  elif [[ $status -eq 124 || $status -eq 137 ]]; then
    report "$tool" passed "$count tests until its time was up"
  elif [[ $status -eq 0 ]]; then
    report "$tool" passed "$count tests"
  else
    tail -n 5 "$log"
    report "$tool" failed "$(why $status), $count tests passed"
  fi
}

run_memcheck() { run_sanitizer memcheck 110 --report-api-errors no; }

# Checks only Cairn's kernels, not those of NVIDIA's libraries.
run_racecheck() {
  local option options=()
  for option in kernel-name kernel-regex; do
    if compute-sanitizer --help 2>/dev/null | grep -q -- "--$option\b"; then
      options=("--$option" kns=cairn)
      break
    fi
  done
  run_sanitizer racecheck 100 "${options[@]}"
}

run_bench() {
  local log=$out/bench.log status problems=()
  : >"$log"
  if has 'bench against PyTorch' step_bench; then
    limited 260 env PYTHONUNBUFFERED=1 python3 "$root/tests/bench/gpu_ratio.py" --bin "$build/bin" \
      --library_path "$library_path" --json "$out/bench.json" 2>&1 | tee -a "$log"
    status=${PIPESTATUS[0]}
    [[ $status -eq 0 ]] || problems+=("gpu_ratio.py: $(why "$status"), $(grep -cE '^(MISSED|NOT MEASURED)' "$log") bars not met")
  fi
  if has 'bench against cuBLAS' matrix_power_bench; then
    for precision in tf32 fp32; do
      limited 40 "${ours[@]}" "$build/bin/matrix_power_bench" --precision "$precision" 2>&1 | tee -a "$log"
      status=${PIPESTATUS[0]}
      [[ $status -eq 0 ]] || problems+=("matrix_power_bench $precision: $(why "$status")")
    done
  fi
  if [[ ${#problems[@]} -gt 0 ]]; then
    report bench failed "$(IFS=';' && echo "${problems[*]}")"
  elif [[ -s $log ]]; then
    report bench passed
  fi
}

# The number or text that a summary has under a name.
of_summary() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/run.json" "$1"; }

run_train() {
  local log=$out/train.log data=${CAIRN_MNIST_DIR-} what=MNIST least=0.98 status batch accuracy device rate told
  for program in cairn cairn-ps cairn-worker; do has train $program || return; done
  : >"$log"
  if [[ -z $data ]]; then
    data=$work/digits what="generated digits" least=0.9
    "${ours[@]}" "$build/bin/cairn" digits "$data" --train 60000 --validation 10000 >>"$log" 2>&1
  fi
  for batch in 64 1024; do
    rm -f "$work/run.json"
    limited 80 "${ours[@]}" "$build/bin/cairn" train "$root/deploy/examples/mnist_cnn.json" --data_dir "$data" --ps 1 --workers 1 \
      --sync_replicas --batch_size $batch --epochs 2 --device /gpu:0 --verbose --summary "$work/run.json" >>"$log" 2>&1
    status=$?
    if [[ $status -ne 0 || ! -s $work/run.json ]]; then
      tail -n 15 "$log"
      report "train, batch $batch" failed "$(why $status)"
      continue
    fi
    { cat "$work/run.json" && echo; } >>"$log"
    accuracy=$(of_summary val_accuracy) device=$(of_summary device) rate=$(of_summary examples_per_second)
    told="$what, on $device, $rate images/s, validation accuracy $accuracy"
    if [[ ${device,,} != *gpu* ]]; then
      report "train, batch $batch" failed "not on the card: $told"
    elif [[ $batch -eq 64 ]] && ! awk -v a="$accuracy" -v b="$least" 'BEGIN {exit !(a >= b)}'; then
      report "train, batch $batch" failed "below $least: $told"
    else
      report "train, batch $batch" passed "$told"
    fi
  done
}

# A factorization machine, whose rows of embedding tables are pooled on the card: two runs with the same bits, and one
# on the CPU that agrees with them.
run_tables() {
  local log=$out/tables.log run status told device losses=()
  for program in cairn cairn-ps cairn-worker; do has tables $program || return; done
  "${ours[@]}" "$build/bin/cairn" synthetic ctr "$work/ctr" --rows 200000 --test_rows 20000 --scale 0.01 >"$log" 2>&1
  for run in /gpu:0 /gpu:0 /cpu:0; do
    rm -f "$work/run.json"
    limited 60 "${ours[@]}" "$build/bin/cairn" train "$root/deploy/examples/fm.json" --data_dir "$work/ctr" \
      --dynamic_tables all --ps 1 --workers 1 --sync_replicas --batch_size 2000 --epochs 1 --device $run --precision fp32 \
      --summary "$work/run.json" >>"$log" 2>&1
    status=$?
    if [[ $status -ne 0 || ! -s $work/run.json ]]; then
      tail -n 15 "$log"
      report tables failed "on $run: $(why $status)"
      return
    fi
    { cat "$work/run.json" && echo; } >>"$log"
    device=$(of_summary device)
    if [[ ${device,,} != *${run:1:3}* ]]; then
      report tables failed "on $device instead of $run"
      return
    fi
    losses+=("$(of_summary val_loss)")
    told+="${told:+, }$run $(of_summary examples_per_second) examples/s, validation loss ${losses[-1]}"
  done
  if [[ ${losses[0]} != "${losses[1]}" ]]; then
    report tables failed "two runs differ: $told"
  elif ! awk -v a="${losses[0]}" -v b="${losses[2]}" 'BEGIN {d = a - b; exit !(d * d <= b * b * 1e-8)}'; then
    report tables failed "the GPU and the CPU differ: $told"
  else
    report tables passed "$told"
  fi
}

if prepare; then
  set_library_path
  for part in "${parts[@]}"; do
    if [[ $((seconds - SECONDS)) -lt 10 ]]; then
      report "$part" skipped "the time is up"
    else
      "run_$part"
    fi
  done
fi
echo "gpu: $passed passed, $failed failed" | tee -a "$summary"
[[ $failed -eq 0 && $passed -gt 0 ]]
