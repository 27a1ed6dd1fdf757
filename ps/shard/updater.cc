#include "ps/shard/updater.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

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

Updater::Updater(const Tables& tables, const FinalVersion& final_version, const Options& options)
    : tables_(tables), final_version_(final_version), options_(options) {
  if (options_.trace == nullptr) return;
  for (size_t table = 1; table < tables_.size(); ++table) {
    span_names_.push_back(options_.trace->Keep(absl::StrCat("rows of '", tables_[table].name(), "'")));
  }
}

absl::StatusOr<Updater::Input> Updater::Prepare(const LogEntry& entry, const Contributions& contributions,
                                                bool compute_mean) {
  const absl::Span<const Gradient> contributors = ContributorsOf(entry);
  const int64_t version = VersionOf(entry);
  TableUpdate update = {.version = version, .last = final_version_.IsReached(version), .known = &entry.known};
  update.learning_rate = tables_.store().changed_learning_rate();
  if (options_.staleness_aware_learning_rate) update.rate_divisor = RateDivisor(contributors, version);
  Input input = {.tables = absl::InlinedVector<TableUpdate, 1>(tables_.size(), update)};
  if (HasMean(version)) {
    UseMean(input);
    return input;
  }
  for (size_t i = 0; i < contributors.size(); ++i) {
    if (!contributions[i].has_value()) {
      return absl::InternalError(absl::StrCat("version ", version, " needs the ",
                                              Describe(contributors[i].key),
                                              ", which this server does not have"));
    }
    const PushData& data = contributions[i]->data;
    for (size_t table = 0; table < tables_.size(); ++table) {
      input.tables[table].contributions.push_back(
          {&contributors[i], table < data.size() ? data[table] : nullptr});
    }
  }
  if (!compute_mean) return input;
  UpdateMean mean = {.version = version, .data = speculative_mean_, .sent = speculative_mean_ != nullptr};
  if (!mean.sent) {
    CAIRN_ASSIGN_OR_RETURN(mean.data, tables_.dense().Mean(input.tables[0]));
  }
  for (size_t table = 1; table < tables_.size(); ++table) {
    CAIRN_ASSIGN_OR_RETURN(mean.others.emplace_back(), tables_[table].Mean(input.tables[table]));
  }
  mean_ = std::move(mean);
  UseMean(input);
  input.new_mean = &*mean_;
  return input;
}

void Updater::UseMean(Input& input) const {
  for (size_t table = 0; table < input.tables.size(); ++table) {
    input.tables[table].contributions.clear();
    input.tables[table].mean = &mean_->of(table);
  }
}

absl::StatusOr<std::vector<optim::SliceSquares>> Updater::MeasureNorms(optim::Norms norms,
                                                                       const Input& input) {
  std::vector<optim::SliceSquares> squares;
  for (size_t table = 0; table < tables_.size(); ++table) {
    CAIRN_ASSIGN_OR_RETURN(auto measured, tables_[table].Measure(norms, input.tables[table]));
    squares.insert(squares.end(), std::make_move_iterator(measured.begin()),
                   std::make_move_iterator(measured.end()));
  }
  measuring_ = true;
  return squares;
}

// The variables are the last, because they publish the new version.
absl::Status Updater::MakeUpdate(const Input& input, bool speculative) {
  for (size_t table = tables_.size(); table-- > (speculative ? 1 : 0);) {
    std::optional<TraceSpan> span;
    if (table > 0 && Wants(options_.trace)) {
      span.emplace(options_.trace, TraceLane::kApply, span_names_[table - 1],
                   TraceSpan::What{.step = input.tables[table].version});
    }
    CAIRN_RETURN_IF_ERROR(tables_[table].Apply(input.tables[table]));
  }
  return absl::OkStatus();
}

void Updater::End() {
  mean_.reset();
  speculative_mean_.reset();
  measuring_ = false;
}

bool Updater::TakeSpeculative(const Apply& apply, const Contributions& contributions) {
  if (speculative() == nullptr) return false;
  std::vector<GradientView> data;
  if (!apply.deferred) {
    for (const auto& contribution : contributions) {
      if (!contribution.has_value()) continue;
      GradientView view = DenseTable::ViewOf(contribution->data);
      if (!view.none()) data.push_back(std::move(view));
    }
  }
  if (data.size() == apply.contributors.size()) {
    auto taken = speculative()->Take(apply.contributors, data, final_version_.IsReached(apply.version));
    if (taken.has_value()) speculative_mean_ = std::move(taken->mean);
    return taken.has_value();
  }
  speculative()->Drop();
  return false;
}

void Updater::DropSpeculative() {
  if (speculative() != nullptr) speculative()->Drop();
}

void Updater::ExpectAfter(const Apply& last) {
  if (speculative() == nullptr || final_version_.IsReached(last.version)) return;
  speculative()->Expect(last.contributors, final_version_.IsReached(last.version + 1));
}

}  // namespace cairn::ps
