// Beam search: keeps the most probable of the texts that continue a prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace cairn::worker {

struct Beam {
  std::vector<int64_t> tokens{};
  double log_probability = 0;
  bool ended = false;  // its last token is the end token
};

// `count` beams with this prompt, of which all but the first have the probability 0.
std::vector<Beam> BeamsOf(const std::vector<int64_t>& prompt, int64_t count);

// Replaces the beams by as many of their most probable continuations by one token, most probable first; of equal ones,
// that of the earlier beam and the lower token comes first. `logits` [beam] are not NaN, nor infinite except for tokens
// with the probability 0. A beam that has ended keeps its probability and gets another end token. Returns [beam] which
// of the beams before it continues.
std::vector<int64_t> ExtendBeams(absl::Span<const std::vector<float>> logits, std::optional<int64_t> end,
                                 std::vector<Beam>& beams);

}  // namespace cairn::worker
