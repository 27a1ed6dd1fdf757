// Shared by these tests: jobs, slices, payloads and values of a few floats.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/parameter_server.pb.h"
#include "cairn/v1/session.pb.h"
#include "common/core/clock.h"
#include "common/net/cluster/placement.h"
#include "common/net/wire/frame.h"
#include "optim/optimizer.h"
#include "optim/store/variable_store.h"
#include "tests/support/borrowed.h"

namespace cairn::ps {

// The bytes of some floats, as a payload of one run.
class Bytes {
 public:
  explicit Bytes(std::vector<float> values) : values_(std::move(values)) {
    run_ = {reinterpret_cast<const char*>(values_.data()), values_.size() * sizeof(float)};
  }
  operator net::Payload() const { return {&run_, 1}; }  // NOLINT: stands for a payload

 private:
  const std::vector<float> values_;
  absl::Span<const char> run_;
};

// A time: so many seconds after the start of a test.
inline TimePoint At(int seconds) {
  return TimePoint(std::chrono::seconds(1000 + seconds));
}

inline v1::Chunk ChunkAt(int64_t offset) {
  v1::Chunk chunk;
  chunk.set_offset(offset);
  return chunk;
}

// Whole vectors of the given sizes, one after another.
inline std::vector<net::Slice> Vectors(const std::vector<std::pair<std::string, int64_t>>& sizes) {
  std::vector<net::Slice> slices;
  int64_t offset = 0;
  for (const auto& [name, size] : sizes) {
    slices.push_back({name, Shape({size}), 0, size, offset});
    offset += size;
  }
  return slices;
}

// A request for a synchronous job of worker/0 and worker/1, trained by SGD, whose variables are vectors of
// these sizes.
inline v1::CreateRequest TrainingJob(const std::vector<std::pair<std::string, int64_t>>& sizes = {{"a", 2}}) {
  v1::CreateRequest request;
  v1::Job& job = *request.mutable_job();
  job.set_run_id("run");
  job.set_mode(v1::MODE_SYNC);
  for (const char* worker : {"worker/0", "worker/1"}) job.add_workers(worker);
  job.add_servers("host:1");
  job.set_lease_seconds(10);
  job.mutable_optimizer()->set_name("SGD");
  for (const net::Slice& slice : Vectors(sizes)) *request.add_slices() = slice.ToProto();
  return request;
}

inline std::unique_ptr<optim::Optimizer> Sgd(double rate) {
  return optim::MakeOptimizer({.name = "SGD", .hyperparameters = {{"learning_rate", rate}}}).value();
}

inline std::vector<float> ToVector(const optim::Values& values) {
  return {values.data->span().begin(), values.data->span().end()};
}

}  // namespace cairn::ps
