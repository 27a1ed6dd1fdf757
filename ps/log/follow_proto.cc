#include "ps/log/follow_proto.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/status.h"
#include "ps/log/config_change.h"
namespace cairn::ps {

v1::Marker ToProto(const Marker& marker) {
  v1::Marker proto;
  proto.set_token(marker.token);
  proto.set_snapshot(marker.snapshot);
  return proto;
}

v1::ConfigChange ToProto(const ConfigChange& config_change) {
  v1::ConfigChange proto;
  if (config_change.learning_rate.has_value()) proto.set_learning_rate(*config_change.learning_rate);
  *proto.mutable_groups() = ToProto(config_change.groups);
  proto.set_end(config_change.end);
  return proto;
}

namespace {

v1::SliceSquares ToProto(const std::string& variable, int64_t row_begin,
                         absl::Span<const optim::Squares> bands) {
  v1::SliceSquares proto;
  proto.set_variable(variable);
  proto.set_row_begin(row_begin);
  for (const optim::Squares& band : bands) {
    proto.add_gradient(band.gradient);
    proto.add_values(band.values);
    proto.add_direction(band.direction);
  }
  return proto;
}

// Missing elements at the end of a list count as 0. NaN is allowed: it means that the gradient is not finite,
// and the update of that gradient will report it.
absl::StatusOr<optim::SliceSquares> FromProto(const v1::SliceSquares& proto) {
  for (const auto* sums : {&proto.gradient(), &proto.values(), &proto.direction()}) {
    const auto negative = std::find_if(sums->begin(), sums->end(), [](double sum) { return sum < 0; });
    if (negative == sums->end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a sum of squares cannot be ", *negative, ": variable '", proto.variable(), "'"));
  }
  const int bands = std::max({proto.gradient_size(), proto.values_size(), proto.direction_size()});
  optim::SliceSquares slice = {proto.variable(), proto.row_begin(),
                               std::vector<optim::Squares>(static_cast<size_t>(bands))};
  for (int i = 0; i < proto.gradient_size(); ++i)
    slice.bands[static_cast<size_t>(i)].gradient = proto.gradient(i);
  for (int i = 0; i < proto.values_size(); ++i) slice.bands[static_cast<size_t>(i)].values = proto.values(i);
  for (int i = 0; i < proto.direction_size(); ++i)
    slice.bands[static_cast<size_t>(i)].direction = proto.direction(i);
  return slice;
}

}  // namespace

absl::StatusOr<Marker> FromProto(const v1::Marker& proto) {
  if (proto.token().size() <= kMaxMarkerLength)
    return Marker{.token = proto.token(), .snapshot = proto.snapshot()};
  return absl::InvalidArgumentError(absl::StrCat("a marker's name cannot have ", proto.token().size(),
                                                 " bytes, at most ", kMaxMarkerLength));
}

absl::StatusOr<ConfigChange> FromProto(const v1::ConfigChange& proto) {
  CAIRN_RETURN_IF_ERROR(CheckConfigChange(proto, v1::OptimizerConfig()));
  return ConfigChangeOf(proto);
}

namespace {

absl::StatusOr<Refuse> FromProto(const v1::Refuse& proto) {
  Refuse refuse = {.key = ps::FromProto(proto.key()), .staleness = proto.staleness()};
  switch (proto.outcome()) {
    case v1::OUTCOME_STALE:
      refuse.reason = Refuse::Reason::kStale;
      break;
    case v1::OUTCOME_FINISHED:
      refuse.reason = Refuse::Reason::kFinished;
      break;
    case v1::OUTCOME_REJECTED:
      refuse.reason = Refuse::Reason::kNotAMember;
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("a refusal cannot have outcome ", static_cast<int>(proto.outcome())));
  }
  CAIRN_RETURN_IF_ERROR(CheckGradient({.key = refuse.key}));
  if (refuse.staleness >= 0) return refuse;
  return absl::InvalidArgumentError(
      absl::StrCat("a refused gradient cannot be ", refuse.staleness, " versions old"));
}

bool IsOfOneWorkerTwice(absl::Span<const Gradient> gradients) {
  absl::InlinedVector<int, 16> workers;
  for (const Gradient& gradient : gradients) workers.push_back(gradient.key.worker);
  std::sort(workers.begin(), workers.end());
  return std::adjacent_find(workers.begin(), workers.end()) != workers.end();
}

// Reads the contributors of an update to `version`.
absl::StatusOr<std::vector<Gradient>> ReadContributors(
    const google::protobuf::RepeatedPtrField<v1::StagedGradient>& contributors, int64_t version) {
  if (contributors.empty()) return absl::InvalidArgumentError("an update needs at least one gradient");
  if (version < 1)
    return absl::InvalidArgumentError(absl::StrCat("an update cannot lead to version ", version));
  std::vector<Gradient> gradients;
  for (const auto& contributor : contributors) {
    CAIRN_ASSIGN_OR_RETURN(const Gradient gradient, ps::FromProto(contributor));
    if (gradient.base_version >= version) {
      return absl::InvalidArgumentError(
          absl::StrCat("an update to version ", version, " cannot take a gradient from version ",
                       gradient.base_version, " of worker ", gradient.key.worker));
    }
    gradients.push_back(gradient);
  }
  if (!IsOfOneWorkerTwice(gradients)) return gradients;
  return absl::InvalidArgumentError(
      absl::StrCat("an update to version ", version, " cannot take two gradients of one worker"));
}

absl::StatusOr<Apply> FromProto(const v1::Apply& proto) {
  Apply apply = {
      .version = proto.version(), .contributors = {}, .deferred = proto.deferred(), .last = proto.last()};
  CAIRN_ASSIGN_OR_RETURN(apply.contributors, ReadContributors(proto.contributors(), apply.version));
  return apply;
}

absl::StatusOr<Measure> FromProto(const v1::Measure& proto) {
  Measure measure = {.version = proto.version(), .contributors = {}};
  CAIRN_ASSIGN_OR_RETURN(measure.contributors, ReadContributors(proto.contributors(), measure.version));
  if (proto.norms() != v1::NORMS_GRADIENT && proto.norms() != v1::NORMS_LAYER) {
    return absl::InvalidArgumentError("a Measure entry has unknown norms");
  }
  measure.norms = proto.norms() == v1::NORMS_GRADIENT ? optim::Norms::kGradient : optim::Norms::kLayer;
  return measure;
}

absl::StatusOr<Release> ReadRelease(const v1::PushKey& proto) {
  const Release release = {.key = ps::FromProto(proto)};
  CAIRN_RETURN_IF_ERROR(CheckGradient({.key = release.key}));
  return release;
}

absl::StatusOr<LogEntry::Action> ReadAction(const v1::Decision& decision) {
  switch (decision.kind_case()) {
    case v1::Decision::kApply:
      return FromProto(decision.apply());
    case v1::Decision::kMeasure:
      return FromProto(decision.measure());
    case v1::Decision::kRefuse:
      return FromProto(decision.refuse());
    case v1::Decision::kRelease:
      return ReadRelease(decision.release());
    case v1::Decision::kMarker:
      return ps::FromProto(decision.marker());
    case v1::Decision::kConfigChange:
      return ps::FromProto(decision.config_change());
    default:
      return absl::InvalidArgumentError("unknown kind of log entry");
  }
}

}  // namespace

v1::Sums ToProto(const Sums& sums) {
  v1::Sums proto;
  proto.set_index(sums.index);
  for (const optim::SliceSquares& slice : sums.slices) {
    *proto.add_slices() = ToProto(slice.variable, slice.row_begin, slice.bands);
  }
  return proto;
}

absl::StatusOr<Sums> FromProto(const v1::Sums& proto) {
  Sums sums = {.index = proto.index(), .slices = {}};
  for (const v1::SliceSquares& slice : proto.slices()) {
    CAIRN_ASSIGN_OR_RETURN(optim::SliceSquares squares, FromProto(slice));
    sums.slices.push_back(std::move(squares));
  }
  return sums;
}

v1::Decision ToProto(const LogEntry& entry) {
  v1::Decision decision;
  decision.set_index(entry.index);
  for (const auto& [variable, squares] : entry.known) {
    *decision.add_known() = ToProto(variable, 0, {&squares, 1});
  }
  if (const auto* apply = std::get_if<Apply>(&entry.action)) {
    decision.mutable_apply()->set_version(apply->version);
    decision.mutable_apply()->set_deferred(apply->deferred);
    decision.mutable_apply()->set_last(apply->last);
    for (const Gradient& gradient : apply->contributors) {
      *decision.mutable_apply()->add_contributors() = ToProto(gradient);
    }
  } else if (const auto* refuse = std::get_if<Refuse>(&entry.action)) {
    *decision.mutable_refuse()->mutable_key() = ToProto(refuse->key);
    decision.mutable_refuse()->set_outcome(OutcomeOf(refuse->reason));
    decision.mutable_refuse()->set_staleness(refuse->staleness);
  } else if (const auto* release = std::get_if<Release>(&entry.action)) {
    *decision.mutable_release() = ToProto(release->key);
  } else if (const auto* measure = std::get_if<Measure>(&entry.action)) {
    decision.mutable_measure()->set_version(measure->version);
    for (const Gradient& gradient : measure->contributors) {
      *decision.mutable_measure()->add_contributors() = ToProto(gradient);
    }
    decision.mutable_measure()->set_norms(measure->norms == optim::Norms::kGradient ? v1::NORMS_GRADIENT
                                                                                    : v1::NORMS_LAYER);
  } else if (const auto* marker = std::get_if<Marker>(&entry.action)) {
    *decision.mutable_marker() = ToProto(*marker);
  } else {
    *decision.mutable_config_change() = ToProto(std::get<ConfigChange>(entry.action));
  }
  return decision;
}

absl::StatusOr<LogEntry> FromProto(const v1::Decision& decision) {
  LogEntry entry = {.index = decision.index(), .action = {}};
  const auto refuse = [&](const absl::Status& why) {
    return Annotate(why, absl::StrCat("decision ", entry.index));
  };
  for (const v1::SliceSquares& proto : decision.known()) {
    const auto variable = FromProto(proto);
    if (!variable.ok()) return refuse(variable.status());
    entry.known[variable->variable] = Total(variable->bands);
  }
  absl::StatusOr<LogEntry::Action> action = ReadAction(decision);
  if (!action.ok()) return refuse(action.status());
  entry.action = *std::move(action);
  return entry;
}

}  // namespace cairn::ps
