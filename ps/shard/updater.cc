#include "ps/shard/updater.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/log/log_validator.h"

namespace cairn::ps {
namespace {

// Zhang et al. 2016, "Staleness-aware Async-SGD for Distributed Deep Learning", equation 6.
float RateDivisor(absl::Span<const Gradient> contributors, int64_t version) {
  int64_t staleness = 1;
  for (const Gradient& gradient : contributors) {
    staleness = std::max(staleness, version - 1 - gradient.base_version);
  }
  return static_cast<float>(staleness);
}

}  // namespace

absl::StatusOr<Updater::Input> Updater::Prepare(const LogEntry& entry, const Contributions& contributions,
                                                bool compute_mean) {
  const absl::Span<const Gradient> contributors = ContributorsOf(entry);
  const int64_t version = VersionOf(entry);
  Input input;
  if (options_.staleness_aware_learning_rate) input.rate_divisor = RateDivisor(contributors, version);
  if (!HasMean(version)) {
    for (size_t i = 0; i < contributors.size(); ++i) {
      const Gradient& gradient = contributors[i];
      if (!contributions[i].has_value()) {
        return absl::InternalError(absl::StrCat("version ", version, " needs the ", Describe(gradient.key),
                                                ", which this server does not have"));
      }
      const GradientView& data = contributions[i]->data;
      if (data.none() && gradient.examples != 0 && store_.size() > 0) {
        return absl::InternalError(absl::StrCat("version ", version, " uses the ", Describe(gradient.key),
                                                ", computed from ", gradient.examples,
                                                " examples, but this server received none of its elements"));
      }
      input.gradients.emplace_back(data.runs(), gradient.examples);
    }
    if (!compute_mean) return input;
    mean_ = MeanOf(version, input.gradients, contributions);
    input.new_mean = &*mean_;
  }
  const bool none = mean_->data == nullptr;
  input.gradients = {optim::ContributedGradient(none ? nullptr : mean_->data->data(), none ? 0 : 1)};
  return input;
}

UpdateMean Updater::MeanOf(int64_t version, absl::Span<const optim::ContributedGradient> gradients,
                           const Contributions& contributions) {
  int counted = 0;
  GradientView only;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].examples() == 0) continue;
    ++counted;
    only = contributions[i]->data;
  }
  // A gradient in the client's memory is copied, because the mean may be used after its push has been
  // answered.
  if (counted <= 1 && (only.none() || only.buffer() != nullptr)) return {version, only.buffer()};
  std::shared_ptr<AlignedBuffer> mean = store_.pool().Acquire();
  WriteMean(gradients, store_.size(), mean->data());
  return {version, std::move(mean)};
}

optim::VariableStore::Mean Updater::MeanOf(const LogEntry& entry, const Input& input) const {
  return {.gradients = input.gradients,
          .last = final_version_.IsReached(VersionOf(entry)),
          .rate_divisor = input.rate_divisor,
          .known = entry.known};
}

absl::StatusOr<std::vector<optim::SliceSquares>> Updater::MeasureNorms(const LogEntry& entry,
                                                                       const Input& input) {
  CAIRN_ASSIGN_OR_RETURN(auto slices,
                         store_.Measure(std::get<Measure>(entry.action).norms, MeanOf(entry, input)));
  measuring_ = true;
  return slices;
}

absl::Status Updater::ApplyMean(const LogEntry& entry, const Input& input) {
  return store_.ApplyMean(MeanOf(entry, input));
}

void Updater::End() {
  mean_.reset();
  measuring_ = false;
}

bool Updater::TakeSpeculative(const Apply& apply, const Contributions& contributions) {
  if (options_.speculative == nullptr) return false;
  std::vector<GradientView> data;
  if (!apply.deferred) {
    for (const auto& contribution : contributions) {
      if (contribution.has_value() && !contribution->data.none()) data.push_back(contribution->data);
    }
  }
  if (data.size() == apply.contributors.size()) {
    return options_.speculative->Take(apply.contributors, data, final_version_.IsReached(apply.version));
  }
  options_.speculative->Drop();
  return false;
}

void Updater::DropSpeculative() {
  if (options_.speculative != nullptr) options_.speculative->Drop();
}

void Updater::ExpectAfter(const Apply& last) {
  if (options_.speculative == nullptr || final_version_.IsReached(last.version)) return;
  options_.speculative->Expect(last.contributors, final_version_.IsReached(last.version + 1));
}

}  // namespace cairn::ps
