#include "worker/training/training_hooks.h"

#include "client/job_end.h"
#include "common/core/log.h"

namespace cairn::worker {

absl::Status NonChief::AfterTraining() {
  membership_.Leave(v1::LEAVE_REASON_FINISHED, "");
  // If a server fails before the chief has saved, this worker's updates are lost and must be computed again.
  // So the worker waits for the end of the job.
  return membership_.AwaitEnd();
}

absl::Status NonChief::OnEnd(const absl::Status& result) {
  if (!client::IsOver(result)) return result;
  LogInfo(result.message());
  return absl::OkStatus();
}

}  // namespace cairn::worker
