// The flags for the encoding of gradients and values on the wire: the part of the table in options.h that
// `cairn plan` shares.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "common/net/cluster/placement.h"

namespace CLI {
class App;
}

namespace cairn::worker {

struct WireFlags {
  std::string dtype = "float32";  // --wire_dtype ENCODING, or PATTERN=ENCODING,...
  std::string values = "auto";    // --wire_values auto|float32|bfloat16|float16
  // --topk_fraction: the fraction of each gradient that topk sends; nullopt: 0.01.
  std::optional<double> topk_fraction{};
};

void AddWireFlags(CLI::App& app, WireFlags& flags);
// INVALID_ARGUMENT naming the flags that exclude or require each other.
absl::Status ValidateWireFlags(const WireFlags& flags);

// Sets the encodings that the flags request in `job`. INVALID_ARGUMENT naming the flag and, if a pattern
// matches none of `variables`, the pattern.
absl::Status SetWire(const WireFlags& flags, absl::Span<const net::VariableInfo> variables, v1::Job& job);

}  // namespace cairn::worker
