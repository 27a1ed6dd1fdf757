// Replies to calls. A reply runs on any thread, outside all locks.
#pragma once

#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "ps/job/active_job.h"
#include "ps/shard/effect_sink.h"

namespace cairn::ps {

template <typename Response>
using Reply = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

// Replies now or, if `job` has a backup, when the backup has received everything that the answer reveals. An
// error reveals nothing. `job` may be null.
template <typename Response>
void AnswerWhenReplicated(const std::shared_ptr<ActiveJob>& job, Reply<Response> reply,
                          absl::StatusOr<Response> answer) {
  if (!answer.ok() || job == nullptr || job->replicator() == nullptr) {
    reply(std::move(answer));
    return;
  }
  job->replicator()->WhenReplicated(Answered<Response>(std::move(reply), std::move(answer)));
}

}  // namespace cairn::ps
