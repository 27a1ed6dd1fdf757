#include "embedding/optimizers/row_optimizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "embedding/optimizers/rules/row_rules.h"

namespace cairn::embedding {
namespace {

using optim::Domain;
using optim::HyperparameterReader;

struct RowOptimizerRow {
  absl::string_view name;
  double learning_rate;  // Keras' default; RowWiseAdagrad: FBGEMM's
  std::unique_ptr<const RowRule> (*make)(HyperparameterReader& read, int dim, optim::Isa isa);
};
constexpr RowOptimizerRow kRowOptimizers[] = {
    {"SGD", 0.01, MakeSgdRows},          {"Adam", 0.001, MakeAdamRows},
    {"Adagrad", 0.001, MakeAdagradRows}, {"RowWiseAdagrad", 0.01, MakeRowWiseAdagrad},
    {"RMSprop", 0.001, MakeRmspropRows}, {"Ftrl", 0.001, MakeFtrlRows},
};

absl::StatusOr<optim::Schedule> ReadRowLearningRate(const optim::OptimizerConfig& config, double default_rate,
                                                    HyperparameterReader& read) {
  const double rate = read.Take("learning_rate", default_rate, Domain::kNonNegative);
  if (!config.schedule.has_value()) return [rate](int64_t) { return rate; };
  if (config.hyperparameters.count("learning_rate") > 0)
    read.Report("both a learning_rate and a schedule are set");
  return optim::MakeSchedule(*config.schedule);
}

RowClips ReadClips(HyperparameterReader& read) {
  RowClips clips;
  clips.clipvalue = static_cast<float>(read.Take("clipvalue", 0, Domain::kNonNegative));
  clips.row_clipnorm = static_cast<float>(read.Take("row_clipnorm", 0, Domain::kNonNegative));
  if (clips.clipvalue > 0 && clips.row_clipnorm > 0) {
    read.Report("only one of clipvalue and row_clipnorm may be set");
  }
  for (const char* norm : {"clipnorm", "global_clipnorm"}) {
    if (read.Take(norm, 0, Domain::kNonNegative) == 0) continue;
    read.Report(
        absl::StrCat("'", norm, "' is a norm over all rows, which a table lacks; clipvalue limits elements"));
  }
  return clips;
}

// Reads the keys that every Keras optimizer has and that must be off, or do not affect the update.
void ReadOtherKeys(HyperparameterReader& read) {
  for (const char* change : {"weight_decay", "use_ema"}) {
    if (read.Take(change, 0, Domain::kNonNegative) == 0) continue;
    read.Report(
        absl::StrCat("'", change, "' changes all rows in every update, which a table lacks; leave it out"));
  }
  read.RefuseUnless("loss_scale_factor", 1);
  read.RefuseUnless("gradient_accumulation_steps", 1);
  read.RefuseUnless("decay", 0);
  for (const char* name : {"ema_momentum", "ema_overwrite_frequency", "jit_compile", "is_legacy_optimizer"}) {
    read.Ignore(name);
  }
}

void ClipValues(float limit, absl::Span<const float> gradients, float* clipped) {
  for (const float g : gradients) *clipped++ = std::min(std::max(g, -limit), limit);
}

void ClipRowNorms(float limit, int dim, absl::Span<const float> gradients, float* clipped) {
  for (size_t begin = 0; begin < gradients.size(); begin += static_cast<size_t>(dim)) {
    const auto row = gradients.subspan(begin, static_cast<size_t>(dim));
    double square = 0;
    for (const float g : row) square += static_cast<double>(g) * g;
    const double norm = std::sqrt(square);
    const auto scale = static_cast<float>(norm > limit ? limit / norm : 1);
    for (const float g : row) *clipped++ = g * scale;
  }
}

}  // namespace

RowOptimizer::RowOptimizer(absl::string_view name, std::unique_ptr<const RowRule> rule,
                           optim::Schedule learning_rate, const RowClips& clips, int dim)
    : name_(name),
      rule_(std::move(rule)),
      learning_rate_(std::move(learning_rate)),
      clips_(clips),
      dim_(dim) {}

void RowOptimizer::Apply(absl::Span<float* const> rows, absl::Span<const float> gradients,
                         const RowUpdate& update) const {
  const auto dim = static_cast<size_t>(dim_);
  CAIRN_CHECK(gradients.size() == rows.size() * dim && update.step >= 1);
  if (clips_.clipvalue == 0 && clips_.row_clipnorm == 0)
    return rule_->Update({rows, gradients.data()}, update);
  // In blocks, so that the clipped gradients stay in the caches.
  const size_t block = std::max<size_t>(size_t{16384} / dim, 1);
  std::vector<float> clipped(std::min(block, rows.size()) * dim);
  for (size_t begin = 0; begin < rows.size(); begin += block) {
    const auto of_block = gradients.subspan(begin * dim, block * dim);
    if (clips_.clipvalue > 0) {
      ClipValues(clips_.clipvalue, of_block, clipped.data());
    } else {
      ClipRowNorms(clips_.row_clipnorm, dim_, of_block, clipped.data());
    }
    rule_->Update({rows.subspan(begin, block), clipped.data()}, update);
  }
}

void RowOptimizer::Read(absl::Span<const float* const> rows, const RowUpdate& at,
                        absl::Span<float> values) const {
  CAIRN_CHECK(values.size() == rows.size() * static_cast<size_t>(dim_));
  rule_->Read(rows, at, values.data());
}

int64_t FirstNonFiniteRow(absl::Span<const float> gradients, int dim, optim::Isa isa) {
  // The exponent of infinities and NaNs is all ones, so their magnitudes as integers are the largest.
  constexpr int32_t kMagnitude = 0x7FFFFFFF, kInfinity = 0x7F800000;
  constexpr int64_t kBlock = 4096;
  const auto count = static_cast<int64_t>(gradients.size());
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const float* const block = gradients.data() + begin;
    const int64_t size = std::min(kBlock, count - begin);
    const int32_t largest = optim::RunOn(isa, [=]() CAIRN_INLINE_LAMBDA {
      int32_t magnitude = 0;
      for (int64_t i = 0; i < size; ++i) {
        magnitude = std::max(magnitude, std::bit_cast<int32_t>(block[i]) & kMagnitude);
      }
      return magnitude;
    });
    if (largest < kInfinity) continue;
    const float* const found = std::find_if(block, block + size, [](float g) { return !std::isfinite(g); });
    return (found - gradients.data()) / dim;
  }
  return kAllRowsFinite;
}

absl::StatusOr<std::unique_ptr<const RowOptimizer>> MakeRowOptimizer(const optim::OptimizerConfig& config,
                                                                     int dim, optim::Isa isa) {
  for (const RowOptimizerRow& row : kRowOptimizers) {
    if (!absl::EqualsIgnoreCase(config.name, row.name)) continue;
    HyperparameterReader read(absl::StrCat("optimizer ", row.name), config.hyperparameters);
    auto learning_rate = ReadRowLearningRate(config, row.learning_rate, read);
    auto rule = row.make(read, dim, isa);
    const RowClips clips = ReadClips(read);
    ReadOtherKeys(read);
    CAIRN_RETURN_IF_ERROR(read.Finish());
    CAIRN_RETURN_IF_ERROR(Annotate(learning_rate.status(), absl::StrCat("optimizer ", row.name)));
    return std::make_unique<const RowOptimizer>(row.name, std::move(rule), *std::move(learning_rate), clips,
                                                dim);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown optimizer '", config.name, "' of a table; supported: ",
      absl::StrJoin(kRowOptimizers, ", ",
                    [](std::string* out, const RowOptimizerRow& row) { absl::StrAppend(out, row.name); })));
}

}  // namespace cairn::embedding
