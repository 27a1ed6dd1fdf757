// Checks the tensor fragments that arrive from the other end of a link, and assembles the tensors at their
// destinations. Owned by a stage leader or a stage worker. Any thread, but the fragments of one tensor come
// from one thread.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "absl/status/statusor.h"
#include "cairn/v1/split.pb.h"
#include "common/core/mutex.h"
#include "common/net/wire/frame.h"

namespace cairn::split {

class Incoming {
 public:
  // Removes all expected tensors.
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);
  // Expects the tensor that `tensor` names by kind, index, slot and micro-batch, and receives its `size`
  // floats into `to`, which may be written until Clear().
  void Expect(const v1::StageTensorName& tensor, float* to, int64_t size) ABSL_LOCKS_EXCLUDED(mutex_);

  struct Taken {
    int64_t floats = 0;
    bool whole = false;  // this was the last fragment of the tensor
  };
  // INVALID_ARGUMENT for a fragment that is not expected, or not the next one of its tensor.
  absl::StatusOr<Taken> Take(const v1::StageTensorName& tensor, net::Payload payload)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The tensor; null if it is not complete.
  const float* Find(const v1::StageTensorName& tensor) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Key = std::tuple<int, int, int, int>;  // kind, index, slot, micro-batch
  struct Target {
    float* to = nullptr;
    int64_t size = 0, arrived = 0;
  };
  static Key KeyOf(const v1::StageTensorName& tensor) {
    return {tensor.kind(), tensor.index(), tensor.slot(), tensor.micro_batch()};
  }

  Mutex mutex_;
  std::map<Key, Target> targets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::split
