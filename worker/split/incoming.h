// What is expected of the other end of a link, and where it goes: pieces are checked and put together. Owned
// by a head or a partner; any thread, each thing from one.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "absl/status/statusor.h"
#include "cairn/v1/split.pb.h"
#include "common/core/mutex.h"
#include "common/net/frame.h"

namespace cairn::split {

class Incoming {
 public:
  // Nothing is expected.
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);
  // `size` floats, to `to`, of what `piece` names by kind, index, slot and micro-batch. They are written
  // until Clear().
  void Expect(const v1::SplitPiece& piece, float* to, int64_t size) ABSL_LOCKS_EXCLUDED(mutex_);

  struct Taken {
    int64_t floats = 0;
    bool whole = false;  // it was the last of it
  };
  // INVALID_ARGUMENT for what is not expected, or not next.
  absl::StatusOr<Taken> Take(const v1::SplitPiece& piece, net::Payload payload) ABSL_LOCKS_EXCLUDED(mutex_);
  // Null where it has not come whole.
  const float* Find(const v1::SplitPiece& piece) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Key = std::tuple<int, int, int, int>;  // kind, index, slot, micro-batch
  struct Target {
    float* to = nullptr;
    int64_t size = 0, arrived = 0;
  };
  static Key KeyOf(const v1::SplitPiece& piece) {
    return {piece.kind(), piece.index(), piece.slot(), piece.micro_batch()};
  }

  Mutex mutex_;
  std::map<Key, Target> targets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::split
