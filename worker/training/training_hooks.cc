#include "worker/training/training_hooks.h"

#include "client/job_end.h"
#include "common/core/log.h"

namespace cairn::worker {

absl::Status NonChief::OnEnd(const absl::Status& result) {
  if (!client::IsOver(result)) return result;
  LogInfo(result.message());
  return absl::OkStatus();
}

}  // namespace cairn::worker
