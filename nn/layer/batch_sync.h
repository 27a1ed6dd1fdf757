// The other devices of a step, for an op that normalizes by the whole batch (Layer::synchronizes_batch()). A replica on
// several devices owns it, one for each device; the device's thread calls it.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace cairn::nn {

class BatchSync {
 public:
  virtual ~BatchSync() = default;
  // The device's examples divided by those of all devices, in the current step.
  virtual double share() const = 0;
  // Replaces each value by its sum over the devices that have examples, in the order of the devices. All of them make
  // the same calls in the order of their ops. Blocks until they have; there is no timeout, because they are our own
  // devices. ABORTED if one of them has failed.
  virtual absl::Status Sum(absl::Span<double> values) = 0;
};

}  // namespace cairn::nn
