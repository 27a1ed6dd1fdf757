#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/cluster_files/plan.h"
#include "cli/cluster_files/quote.h"
#include "common/core/status.h"
#include "common/flags/words.h"

namespace cairn::cli {
namespace {

constexpr char kScript[] = R"sh(#!/usr/bin/env bash
# Trains on @SERVERS@ and @WORKERS@: starts every task, over ssh if its host is not this one, and ends when all tasks
# have ended. If a task fails, stops the others and exits with its code. Each task logs to TASK.log in the current folder.
#   @COMMAND@
# Usage: SCRIPT [FLAG...]     flags of cairn-worker: --model=cnn.json --data_dir=DIR --train_dir=DIR ...
# All paths are on the host of the task. CAIRN_BIN_DIR is the directory of the programs; without it, the PATH is
# searched. CAIRN_JOB_TOKEN_FILE is the file with the job token (docs/security.md).
set -u

cluster=@CLUSTER@
flags=(@FLAGS@ "$@")
bin=${CAIRN_BIN_DIR:+$CAIRN_BIN_DIR/}
token=(${CAIRN_JOB_TOKEN_FILE:+"--job_token_file=$CAIRN_JOB_TOKEN_FILE"})
declare -A task_of=()

# Quotes each word for the shell that sshd starts, which may be any POSIX shell.
quote() {
  local word mark="'\\''"
  for word in "$@"; do printf "'%s' " "${word//\'/"$mark"}"; done
}

# start TASK HOST PROGRAM ARGUMENTS...
start() {
  local task=$1 host=$2
  local words=(env "TF_CONFIG={\"cluster\": $cluster}" "${@:3}" "--job_name=${task%/*}" "--task_index=${task#*/}" "${token[@]}")
  case $host in
    localhost | 127.0.0.1 | "$(hostname)") ;;
    # A remote task has its own terminal, so it gets a hangup signal when this script ends.
    *) words=(ssh -tt -o BatchMode=yes -o ConnectTimeout=10 -- "$host" "$(quote "${words[@]}")") ;;
  esac
  "${words[@]}" >"${task/\//}.log" 2>&1 </dev/null &
  task_of[$!]=$task
}

stop() { kill "${!task_of[@]}" 2>/dev/null; }
trap 'stop; exit 143' TERM
trap 'stop; exit 130' INT

@START@
code=0
while [[ ${#task_of[@]} -gt 0 ]]; do
  status=0
  wait -n -p pid "${!task_of[@]}" || status=$?
  task=${task_of[$pid]}
  unset "task_of[$pid]"
  if [[ $status != 0 && $code == 0 ]]; then
    code=$status
    echo "$task ended with $status, the others are stopped: $(tail -n 1 "${task/\//}.log")" >&2
    stop
  fi
done
exit "$code"
)sh";

}  // namespace

absl::StatusOr<std::string> WriteShell(const ClusterPlan& plan) {
  CAIRN_ASSIGN_OR_RETURN(const net::ClusterSpec spec, SpecOf(plan));
  std::string start;
  for (const char* job : {"ps", "worker"}) {
    for (const auto& [index, address] : spec.tasks(job)) {
      absl::StrAppend(&start, "start ", job, "/", index, " ", QuoteForShell(address.host), " \"${bin}cairn-",
                      job, job[0] == 'w' ? "\" \"${flags[@]}\"\n" : "\"\n");
    }
  }
  std::vector<std::string> flags;
  for (const std::string& flag : plan.worker_flags) flags.push_back(QuoteForShell(flag));
  return Fill(kScript, {{"SERVERS", Counted(plan.servers, "server")},
                        {"WORKERS", Counted(plan.workers, "worker")},
                        {"COMMAND", plan.command},
                        {"CLUSTER", QuoteForShell(spec.ToJson())},
                        {"FLAGS", absl::StrJoin(flags, " ")},
                        {"START", start}});
}

}  // namespace cairn::cli
