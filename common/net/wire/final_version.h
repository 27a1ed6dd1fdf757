// The version at which a job ends.
#pragma once

#include <cstdint>

#include "cairn/v1/job.pb.h"

namespace cairn::net {

// The version at which `job` ends; 0: no version ends it. After a resume with another batch size or other
// workers, it differs from the version that follows from the flags alone.
inline int64_t FinalVersionOf(const v1::Job& job) {
  return job.final_version() == 0 ? 0 : job.final_version() + job.resumed().version_offset();
}

}  // namespace cairn::net
