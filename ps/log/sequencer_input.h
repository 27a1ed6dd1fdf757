// Everything that changes the state of a sequencer (sequencer_state.h), also as a message (sequencer.proto).
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "absl/status/statusor.h"
#include "cairn/v1/sequencer.pb.h"
#include "ps/log/log_entry.h"

namespace cairn::ps {

struct WorkerJoined {
  int worker = 0;
  uint64_t incarnation = 0;
};

// The worker has left, or its lease has expired.
struct WorkerLeft {
  int worker = 0;
  uint64_t incarnation = 0;
};

// A server has received this push completely.
struct PushStaged {
  int server = 0;
  Gradient gradient;
};

// A server has measured its slices.
struct SumsReported {
  int server = 0;
  Sums sums;
};

// A server has executed the log up to `index`.
struct EntriesExecuted {
  int server = 0;
  int64_t index = 0;
};

struct MarkerPlaced {
  Marker marker;
};

// The chief changes the config, as in Sequencer::ChangeConfig().
struct ConfigChanged {
  uint64_t incarnation = 0;
  int64_t number = 0;
  ConfigChange config_change;
};

using SequencerInput = std::variant<WorkerJoined, WorkerLeft, PushStaged, SumsReported, EntriesExecuted,
                                    MarkerPlaced, ConfigChanged>;

// The server and the worker that the input names, if any.
std::optional<int> ServerOf(const SequencerInput& input);
std::optional<int> WorkerOf(const SequencerInput& input);

v1::SequencerInput ToProto(const SequencerInput& input);
// INVALID_ARGUMENT for an unknown kind of input, and for an impossible gradient, sum, marker or learning rate.
absl::StatusOr<SequencerInput> FromProto(const v1::SequencerInput& proto);

}  // namespace cairn::ps
