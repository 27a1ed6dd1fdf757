// At which version a job ends.
#pragma once

#include <cstdint>

#include "cairn/v1/job.pb.h"

namespace cairn::net {

// Of a job that was resumed with another batch size or other workers, later or earlier than its flags alone
// say; 0: no version ends it.
inline int64_t FinalVersionOf(const v1::Job& job) {
  return job.final_version() == 0 ? 0 : job.final_version() + job.resumed().version_offset();
}

}  // namespace cairn::net
