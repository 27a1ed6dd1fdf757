#!/usr/bin/env bash
# Builds and runs all tests, from nothing: release, AddressSanitizer with UndefinedBehaviorSanitizer and a few seconds
# of each fuzz target, ThreadSanitizer with clang's thread-safety analysis. Ends with "N passed, N failed, N skipped"
# and fails when anything did.
#   tests/run.sh [release|dev|tsan]...   only these stages
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
if [[ -n ${CAIRN_MNIST_DIR-} ]]; then CAIRN_MNIST_DIR=$(realpath -e -- "$CAIRN_MNIST_DIR"); fi

stages=("$@")
if [[ $# -eq 0 ]]; then stages=(release dev tsan); fi
for stage in "${stages[@]}"; do
  case $stage in
    release | dev | tsan) ;;
    *)
      echo "usage: tests/run.sh [release|dev|tsan]..." >&2
      exit 2
      ;;
  esac
done

# A compiler cache that an earlier clone filled serves this one too.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=true

passed=0 failed=0 skipped=0
failures=()
say() { echo "== +${SECONDS}s $*"; }

# ThreadSanitizer needs the address layout that kernels before 6.6 had; where the system lets us, we ask for it.
run=()
if setarch --addr-no-randomize true 2>/dev/null; then run=(setarch --addr-no-randomize); fi

# build STAGE CMAKE_ARGUMENTS...: quiet unless it fails.
build() {
  local stage=$1 log
  shift
  mkdir -p build
  log=build/$stage.log
  say "$stage: building"
  if ! { cmake --preset "$stage" "$@" && "${run[@]}" cmake --build --preset "$stage"; } >"$log" 2>&1; then
    grep -E -A 8 'error|FAILED|CMake Error' "$log" | head -n 60 || tail -n 60 "$log"
    failed=$((failed + 1))
    failures+=("$stage: the build (all of it in $log)")
    return 1
  fi
}

# The number that the root element of a JUnit file gives for an attribute.
junit_count() { grep -o -m 1 "$2=\"[0-9]*\"" "$1" | head -n 1 | tr -dc 0-9; }

# run_ctest STAGE NAME CTEST_ARGUMENTS...: some of a stage's tests, with build/STAGE/NAME.xml as their report.
run_ctest() {
  local stage=$1 report=$root/build/$1/$2.xml
  shift 2
  rm -f "$report"
  "${run[@]}" ctest --preset "$stage" --output-junit "$report" "$@" | grep -vE '^ *(Start |[0-9]+/[0-9]+ Test +#.* Passed )' || true
}

# count_tests STAGE NAME: adds up what a report says.
count_tests() {
  local stage=$1 report=$root/build/$1/$2.xml tests bad idle
  if [[ ! -s $report ]]; then
    failed=$((failed + 1))
    failures+=("$stage: ctest left no report $2.xml")
    return
  fi
  tests=$(junit_count "$report" tests)
  bad=$(junit_count "$report" failures)
  idle=$(($(junit_count "$report" skipped) + $(junit_count "$report" disabled)))
  passed=$((passed + tests - bad - idle))
  failed=$((failed + bad))
  skipped=$((skipped + idle))
  if [[ $bad -gt 0 ]]; then failures+=("$stage: $bad of $tests tests"); fi
}

# Tests of several processes, which only the release build has, mostly wait for one another.
tests_at_once=$(($(nproc) + 1))
release_tests_at_once=$(($(nproc) * 2))

# Tests that mostly wait have a label. They run one at a time, concurrently with the others; their output comes last.
run_tests() {
  local stage=$1
  say "$stage: testing"
  if [[ $stage != release ]]; then
    run_ctest "$stage" junit -j "$tests_at_once"
    count_tests "$stage" junit
    return
  fi
  run_ctest "$stage" junit_waits -L waits >build/release_waits.log 2>&1 &
  run_ctest "$stage" junit -LE waits -j "$release_tests_at_once"
  wait $!
  cat build/release_waits.log
  count_tests "$stage" junit
  count_tests "$stage" junit_waits
}

deploy/setup.sh --with-tests

for stage in "${stages[@]}"; do
  # Compiling folders hides missing includes: tests/guard/includes_test.py finds those.
  # With CUDA: the code is compiled for one architecture, which shows that it compiles for all.
  # The Python package in the release stage only: sanitizers would need an interpreter that loads them first.
  options=(-DCAIRN_BUILD_TESTS=ON -DCAIRN_COMPILE_FOLDERS=ON -DCMAKE_CUDA_ARCHITECTURES=90-real)
  if [[ $stage == release ]]; then
    python=$(tests/python/environment.sh)
    options+=(-DCAIRN_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$python" -DPython_FIND_VIRTUALENV=ONLY)
  fi
  if build "$stage" "${options[@]}"; then
    run_tests "$stage"
  fi
done

say "done"
for failure in "${failures[@]}"; do echo "failed in $failure"; done
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 && $passed -gt 0 ]]
