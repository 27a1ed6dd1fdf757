// One update of all that a server holds. Where the optimizer needs norms it passes in stages: MeasureParts()
// for each of Optimizer::norms(), after which the servers of a job add up what they found, and then
// UpdateParts().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/core/crew.h"
#include "ps/optim/apply.h"
#include "ps/optim/isa.h"
#include "ps/optim/optimizer.h"

namespace cairn::ps {

// Elements [begin, end) of a server's values that change by one rule.
struct UpdatePart {
  int64_t begin = 0;
  int64_t end = 0;
  std::optional<float> moving_average_momentum{};  // absent: the optimizer; else ApplyMovingAverage()
  // Elements whose squares are summed together, from `begin` on, where the optimizer needs norms: such a part
  // is of one variable.
  int64_t band = 0;
};

// Elements from `begin` on, to where the next run begins or to the end, lie one after another here.
struct ElementRun {
  int64_t begin = 0;
  const float* elements = nullptr;

  friend bool operator==(const ElementRun&, const ElementRun&) = default;
};

// A worker's gradient, parallel to all values of a server, wherever its elements lie. Borrowed.
class ContributedGradient {
 public:
  // In one piece. `examples` as in WeightedGradient.
  ContributedGradient(const float* values, int64_t examples) : whole_{0, values}, examples_(examples) {}
  // In runs, by rising `begin`, the first of which has element 0; or in none, when it has no examples.
  ContributedGradient(absl::Span<const ElementRun> runs, int64_t examples)
      : runs_(runs), examples_(examples) {}

  absl::Span<const ElementRun> runs() const {
    return runs_.empty() ? absl::MakeConstSpan(&whole_, 1) : runs_;
  }
  int64_t examples() const { return examples_; }

 private:
  absl::Span<const ElementRun> runs_;
  ElementRun whole_;
  int64_t examples_;
};

// What the last MeasureParts() came to over all servers. Empty before the first.
struct KnownSquares {
  std::vector<Squares> of_part{};  // [part]: of the whole variable that it is of
  double all_gradients = 0;        // Squares::gradient of all the job's variables
};

// Borrowed for the length of a call. Each element of `all` is in one of the `parts`.
struct Update {
  const Optimizer& optimizer;
  UpdateStep step;
  absl::Span<const ContributedGradient> gradients;
  absl::Span<const UpdatePart> parts;
  UpdateRange all;
  const KnownSquares& known;
  Isa isa = WidestIsa();
  Crew* crew = nullptr;  // who may help, but with norms' sums and pieces; the same bits with any number
};

// What the parts add to the sums of `norms`. [part][band]; nothing for moving averages, which take no part in
// norms.
struct MeasuredParts {
  int64_t non_finite = kAllFinite;  // else as ApplyMean(), an index in `all`, and no sums
  std::vector<std::vector<Squares>> of_part{};
};
// kGradient changes nothing. kLayer makes the update but for its last move: slots are updated, and
// all.new_values holds the directions until UpdateParts() is called with the same `all`.
MeasuredParts MeasureParts(Norms norms, const Update& update);

// The update itself, after MeasureParts() for each of the optimizer's norms. Returns as ApplyMean(), an index
// in `all`.
int64_t UpdateParts(const Update& update);

// Elements [begin, end) of `all` alone, by an optimizer that takes no norms: to the bit as UpdateParts()
// makes them. Any number of threads, each at elements of its own.
int64_t UpdatePiece(const Update& update, int64_t begin, int64_t end);

// WriteMean() of gradients that lie anywhere.
void WriteMean(absl::Span<const ContributedGradient> gradients, int64_t count, float* mean,
               Isa isa = WidestIsa());

}  // namespace cairn::ps
