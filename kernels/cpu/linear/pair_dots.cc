// Dot products of pairs of rows, example by example.
#include "kernels/pair_dots.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/core/status.h"
#include "kernels/cpu/loops/instruction_sets.h"
#include "kernels/cpu/loops/pair_dots_loops.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class CpuPairDots final : public UnaryOp {
 public:
  CpuPairDots(onednn::Context& context, const PairDots& pairs, TensorDesc output, bool normalize)
      : context_(context),
        pairs_(pairs),
        output_(std::move(output)),
        inverse_norms_(normalize ? static_cast<size_t>(pairs.batch * pairs.rows) : 0) {
    for (int64_t i = 0; i < pairs.rows; ++i) {
      for (int64_t j = 0; j < pairs.rows; ++j) {
        for (const int64_t index : {pairs.IndexOf(i, j), pairs.IndexOf(j, i)}) {
          if (index >= 0) partners_.push_back({static_cast<int32_t>(j), static_cast<int32_t>(index)});
        }
      }
      first_partners_.push_back(static_cast<int64_t>(partners_.size()));
    }
  }

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    if (pairs_.rows == 1 && pairs_.self && !normalizes()) return SquareRows(x, y);
    // The rows that are multiplied by others: all, or those after the first ones.
    const int64_t packed_rows = pairs_.rows - pairs_.first_rows, width = pairs_.width;
    ForExamples([&](int64_t begin, int64_t end) {
      std::vector<float> packed(
          static_cast<size_t>((packed_rows + code_.lanes - 1) / code_.lanes * code_.lanes * width));
      for (int64_t example = begin; example < end; ++example) {
        const float* const rows = x + example * pairs_.rows * width;
        float* const to = y + example * pairs_.outputs;
        if (normalizes()) NormsOf(example, rows);
        if (pairs_.square) std::fill_n(to, pairs_.outputs, 0.0f);
        code_.pack(rows + pairs_.first_rows * width, packed_rows, width, packed.data());
        for (int64_t i = 0; i < pairs_.rows; ++i) {
          const PairDots::Row pairs = pairs_.PairsOf(i);
          if (pairs.count == 0) continue;
          float* const of_row = to + pairs.index;
          code_.products(rows + i * width, packed.data(), pairs.count, width, of_row);
          for (int64_t j = 0; j < pairs.count && normalizes(); ++j)
            of_row[j] = of_row[j] * Scale(example, i) * Scale(example, pairs_.first_rows + j);
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float* x, const float* y, const float* dy, float* dx) override {
    ForExamples([&](int64_t begin, int64_t end) {
      std::vector<WeightedRow> terms(static_cast<size_t>(2 * pairs_.rows));
      for (int64_t example = begin; example < end; ++example) {
        const int64_t first = example * pairs_.rows * pairs_.width;
        for (int64_t i = 0; i < pairs_.rows; ++i)
          BackwardOfRow(example, i, x + first, y + example * pairs_.outputs, dy + example * pairs_.outputs,
                        terms.data(), dx + first + i * pairs_.width);
      }
    });
    return absl::OkStatus();
  }

 private:
  bool normalizes() const { return !inverse_norms_.empty(); }
  float Scale(int64_t example, int64_t row) const {
    return normalizes() ? inverse_norms_[static_cast<size_t>(example * pairs_.rows + row)] : 1.0f;
  }
  void NormsOf(int64_t example, const float* rows) {
    float* const norms = inverse_norms_.data() + example * pairs_.rows;
    code_.squares(rows, pairs_.rows, pairs_.width, norms);
    for (int64_t i = 0; i < pairs_.rows; ++i) norms[i] = InverseNorm(norms[i]);
  }
  // A factor of row i, and the index of their product. A row that is multiplied with itself is its own partner twice.
  struct Partner {
    int32_t row, index;
  };
  absl::Span<const Partner> PartnersOf(int64_t i) const {
    const auto first = static_cast<size_t>(first_partners_[static_cast<size_t>(i)]);
    return absl::MakeConstSpan(partners_).subspan(
        first, static_cast<size_t>(first_partners_[static_cast<size_t>(i) + 1]) - first);
  }
  // Examples of one row: its product with itself.
  absl::Status SquareRows(const float* x, float* y) {
    ForExamples([&](int64_t begin, int64_t end) {
      code_.squares(x + begin * pairs_.width, end - begin, pairs_.width, y + begin);
    });
    return absl::OkStatus();
  }

  // With r = 1 / |x_i|, and the sums over the pairs of row i: dx_i = r (sum dy_ij x_j / |x_j| - x_i r sum dy_ij
  // y_ij). `terms` [2 * rows] is working memory.
  void BackwardOfRow(int64_t example, int64_t i, const float* rows, const float* y, const float* dy,
                     WeightedRow* terms, float* dx) const {
    const float scale = Scale(example, i);
    float projection = 0;
    int64_t count = 0;
    for (const Partner partner : PartnersOf(i)) {
      float weight = dy[partner.index];
      if (normalizes()) {
        projection += weight * y[partner.index];
        weight = weight * Scale(example, partner.row) * scale;
      }
      terms[count++] = {rows + partner.row * pairs_.width, weight};
    }
    code_.add(terms, count, pairs_.width, dx);
    if (!normalizes() || IsLimited(scale)) return;
    const float* const own = rows + i * pairs_.width;
    for (int64_t k = 0; k < pairs_.width; ++k) dx[k] -= own[k] * scale * scale * projection;
  }

  // Calls body(begin, end) for ranges of examples.
  template <typename Body>
  void ForExamples(const Body& body) const {
    const int64_t work = pairs_.rows * pairs_.rows * pairs_.width;
    ParallelFor(context_, pairs_.batch, 1 + kElementGrain / work, body);
  }

  onednn::Context& context_;
  const PairDots pairs_;
  const TensorDesc output_;
  const PairDotsCode code_ = CAIRN_BEST_LOOPS(PairDotsLoops);
  std::vector<Partner> partners_;              // row by row
  std::vector<int64_t> first_partners_ = {0};  // [rows + 1]
  std::vector<float> inverse_norms_;           // [batch, rows]; empty without normalization
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakePairDots(onednn::Context& context,
                                                      const PairDotsParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const PairDots pairs, MakePairs(params));
  return std::make_unique<CpuPairDots>(context, pairs, OutputDesc(params, pairs), params.normalize);
}

}  // namespace cairn::kernels::cpu
