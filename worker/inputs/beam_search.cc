#include "worker/inputs/beam_search.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace cairn::worker {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

struct Candidate {
  double log_probability = 0;
  size_t beam = 0;
  int64_t token = 0;
};

// log(sum(exp(logits)))
double LogSum(const std::vector<float>& logits) {
  const double largest = double{*std::max_element(logits.begin(), logits.end())};
  if (largest == kNever) return 0;  // all differences are kNever, as they should be
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  return largest + std::log(sum);
}

}  // namespace

std::vector<Beam> BeamsOf(const std::vector<int64_t>& prompt, int64_t count) {
  std::vector<Beam> beams(static_cast<size_t>(count), {.tokens = prompt, .log_probability = kNever});
  beams[0].log_probability = 0;
  return beams;
}

std::vector<int64_t> ExtendBeams(absl::Span<const std::vector<float>> logits, std::optional<int64_t> end,
                                 std::vector<Beam>& beams) {
  const auto is_before = [](const Candidate& a, const Candidate& b) {
    if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
    return std::pair(a.beam, a.token) < std::pair(b.beam, b.token);
  };
  std::vector<Candidate> candidates;
  for (size_t beam = 0; beam < beams.size(); ++beam) {
    const double before = beams[beam].log_probability;
    if (beams[beam].ended) {
      candidates.push_back({.log_probability = before, .beam = beam, .token = *end});
      continue;
    }
    const double sum = LogSum(logits[beam]);
    const size_t begin = candidates.size(), end_of_best = begin + std::min(beams.size(), logits[beam].size());
    for (size_t token = 0; token < logits[beam].size(); ++token) {
      candidates.push_back({.log_probability = before + double{logits[beam][token]} - sum,
                            .beam = beam,
                            .token = static_cast<int64_t>(token)});
    }
    // No more than this many candidates of one beam can be kept.
    const auto from_beam = candidates.begin() + static_cast<std::ptrdiff_t>(begin);
    std::partial_sort(from_beam, candidates.begin() + static_cast<std::ptrdiff_t>(end_of_best),
                      candidates.end(), is_before);
    candidates.resize(end_of_best);
  }
  const auto kept = candidates.begin() + static_cast<std::ptrdiff_t>(beams.size());
  std::partial_sort(candidates.begin(), kept, candidates.end(), is_before);
  std::vector<Beam> extended;
  std::vector<int64_t> from;
  for (auto candidate = candidates.begin(); candidate != kept; ++candidate) {
    Beam& beam = extended.emplace_back(beams[candidate->beam]);
    beam.tokens.push_back(candidate->token);
    beam.log_probability = candidate->log_probability;
    beam.ended = end == candidate->token;
    from.push_back(static_cast<int64_t>(candidate->beam));
  }
  beams = std::move(extended);
  return from;
}

}  // namespace cairn::worker
