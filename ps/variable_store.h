// The values of one server's slices, version by version, and their optimizer slots.
//
// An update writes a new buffer and publishes it whole; readers hold the version they took for as long as
// they like and never wait for, or see a part of, an update. Two versions exist as a rule, one more for each
// that a reader still holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/aligned_buffer.h"
#include "common/core/mutex.h"
#include "common/net/placement.h"
#include "ps/buffer_pool.h"
#include "ps/optim/apply.h"
#include "ps/optim/optimizer.h"
#include "ps/optim/update.h"

namespace cairn::ps {

// All values of a server at one version. Immutable.
struct Values {
  int64_t version = 0;
  std::shared_ptr<const AlignedBuffer> data;
};

class VariableStore {
 public:
  // Values and slots start at 0 and the optimizer's initial slot values; version 0. `optimizer` is null where
  // nothing is trained, and outlives the store otherwise.
  VariableStore(std::vector<net::Slice> slices, const Optimizer* optimizer);

  const std::vector<net::Slice>& slices() const { return slices_; }
  int64_t size() const { return pool_.buffer_size(); }  // elements
  // Buffers of size() elements for what arrives.
  BufferPool& pool() { return pool_; }

  // Any thread.
  Values current() const ABSL_LOCKS_EXCLUDED(mutex_);

  // The mean of `gradients` (each of size() elements, in summation order), the optimizer or, where a slice
  // has one, its moving average, version + 1. `last`: the job's last update. One thread at a time, with
  // Write() too. INVALID_ARGUMENT naming the variable when the mean is not finite: nothing is published, but
  // slots may be spoilt, so the caller must end the job.
  absl::Status ApplyMean(absl::Span<const WeightedGradient> gradients, bool last = false);

  // Publishes the current version again with the elements [begin, end) of `data` in it.
  struct Run {
    int64_t begin, end;
  };
  void Write(const AlignedBuffer& data, absl::Span<const Run> runs);

 private:
  void Publish(Values next) ABSL_LOCKS_EXCLUDED(mutex_);
  std::string NameAt(int64_t offset) const;

  const std::vector<net::Slice> slices_;
  const Optimizer* const optimizer_;
  const std::vector<UpdatePart> parts_;
  BufferPool pool_;
  std::vector<AlignedBuffer> slots_;  // [slot][size()]; the updating thread's

  mutable Mutex mutex_;
  Values current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::ps
