// Counts the ids that batches of training look up. Thread-safe.
#pragma once

#include "common/core/metrics.h"

namespace cairn::worker {

struct LookupCounters {
  Counter ids;       // of all batches
  Counter distinct;  // the same, with ids that a batch repeats counted once
};

}  // namespace cairn::worker
