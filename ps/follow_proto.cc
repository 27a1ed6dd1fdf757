#include "ps/follow_proto.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/status.h"
#include "ps/declaration.h"
#include "ps/shard.h"

namespace cairn::ps {

v1::PushKey ToProto(const PushKey& key) {
  v1::PushKey proto;
  proto.set_worker(key.worker);
  proto.set_incarnation(key.incarnation);
  proto.set_step(key.step);
  return proto;
}

PushKey FromProto(const v1::PushKey& proto) {
  return {.worker = proto.worker(), .incarnation = proto.incarnation(), .step = proto.step()};
}

v1::Amendment ToProto(const Amendment& amendment) {
  v1::Amendment proto;
  if (amendment.learning_rate.has_value()) proto.set_learning_rate(*amendment.learning_rate);
  proto.set_end(amendment.end);
  return proto;
}

namespace {

v1::SliceSquares ToProto(const std::string& variable, int64_t row_begin, absl::Span<const Squares> bands) {
  v1::SliceSquares proto;
  proto.set_variable(variable);
  proto.set_row_begin(row_begin);
  for (const Squares& band : bands) {
    proto.add_gradient(band.gradient);
    proto.add_values(band.values);
    proto.add_direction(band.direction);
  }
  return proto;
}

// A list that is shorter than others counts as 0 from there on.
SliceSquares FromProto(const v1::SliceSquares& proto) {
  const int bands = std::max({proto.gradient_size(), proto.values_size(), proto.direction_size()});
  SliceSquares slice = {proto.variable(), proto.row_begin(),
                        std::vector<Squares>(static_cast<size_t>(bands))};
  for (int i = 0; i < proto.gradient_size(); ++i)
    slice.bands[static_cast<size_t>(i)].gradient = proto.gradient(i);
  for (int i = 0; i < proto.values_size(); ++i) slice.bands[static_cast<size_t>(i)].values = proto.values(i);
  for (int i = 0; i < proto.direction_size(); ++i)
    slice.bands[static_cast<size_t>(i)].direction = proto.direction(i);
  return slice;
}

}  // namespace

v1::StagedGradient ToProto(const Gradient& gradient) {
  v1::StagedGradient proto;
  *proto.mutable_key() = ToProto(gradient.key);
  proto.set_base_version(gradient.base_version);
  proto.set_examples(gradient.examples);
  proto.set_position(gradient.position);
  return proto;
}

absl::StatusOr<Gradient> FromProto(const v1::StagedGradient& proto) {
  const Gradient gradient = {.key = FromProto(proto.key()),
                             .base_version = proto.base_version(),
                             .examples = proto.examples(),
                             .position = proto.position()};
  CAIRN_RETURN_IF_ERROR(CheckGradient(gradient));
  return gradient;
}

namespace {

Refuse::Reason ReasonOf(v1::Outcome outcome) {
  switch (outcome) {
    case v1::OUTCOME_STALE:
      return Refuse::Reason::kStale;
    case v1::OUTCOME_FINISHED:
      return Refuse::Reason::kFinished;
    default:
      return Refuse::Reason::kNotAMember;
  }
}

// The contributors of an update to `version`.
absl::StatusOr<std::vector<Gradient>> ReadContributors(
    const google::protobuf::RepeatedPtrField<v1::StagedGradient>& contributors, int64_t version,
    int64_t index) {
  if (contributors.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("decision ", index, " is about no gradient"));
  }
  if (version < 1) {
    return absl::InvalidArgumentError(absl::StrCat("decision ", index, " makes version ", version));
  }
  std::vector<Gradient> gradients;
  for (const auto& contributor : contributors) {
    auto gradient = ps::FromProto(contributor);
    if (!gradient.ok()) return Annotate(gradient.status(), absl::StrCat("decision ", index));
    gradients.push_back(*gradient);
  }
  return gradients;
}

}  // namespace

v1::Sums ToProto(const Sums& sums) {
  v1::Sums proto;
  proto.set_index(sums.index);
  for (const SliceSquares& slice : sums.slices) {
    *proto.add_slices() = ToProto(slice.variable, slice.row_begin, slice.bands);
  }
  return proto;
}

Sums FromProto(const v1::Sums& proto) {
  Sums sums = {.index = proto.index(), .slices = {}};
  for (const v1::SliceSquares& slice : proto.slices()) sums.slices.push_back(FromProto(slice));
  return sums;
}

v1::Decision ToProto(const LogEntry& entry) {
  v1::Decision decision;
  decision.set_index(entry.index);
  for (const auto& [variable, squares] : entry.known) {
    *decision.add_known() = ToProto(variable, 0, {&squares, 1});
  }
  if (const auto* apply = std::get_if<Apply>(&entry.what)) {
    decision.mutable_apply()->set_version(apply->version);
    decision.mutable_apply()->set_held(apply->held);
    decision.mutable_apply()->set_last(apply->last);
    for (const Gradient& gradient : apply->contributors) {
      *decision.mutable_apply()->add_contributors() = ToProto(gradient);
    }
  } else if (const auto* refuse = std::get_if<Refuse>(&entry.what)) {
    *decision.mutable_refuse()->mutable_key() = ToProto(refuse->key);
    decision.mutable_refuse()->set_outcome(OutcomeOf(refuse->reason));
    decision.mutable_refuse()->set_staleness(refuse->staleness);
  } else if (const auto* release = std::get_if<Release>(&entry.what)) {
    *decision.mutable_release() = ToProto(release->key);
  } else if (const auto* measure = std::get_if<Measure>(&entry.what)) {
    decision.mutable_measure()->set_version(measure->version);
    for (const Gradient& gradient : measure->contributors) {
      *decision.mutable_measure()->add_contributors() = ToProto(gradient);
    }
    decision.mutable_measure()->set_norms(measure->norms == Norms::kGradient ? v1::NORMS_GRADIENT
                                                                             : v1::NORMS_LAYER);
  } else if (const auto* mark = std::get_if<Mark>(&entry.what)) {
    decision.mutable_mark()->set_token(mark->token);
    decision.mutable_mark()->set_snapshot(mark->snapshot);
  } else {
    *decision.mutable_amendment() = ToProto(std::get<Amendment>(entry.what));
  }
  return decision;
}

absl::StatusOr<LogEntry> FromProto(const v1::Decision& decision) {
  LogEntry entry = {.index = decision.index(), .what = {}};
  for (const v1::SliceSquares& variable : decision.known()) {
    entry.known[variable.variable()] = Total(FromProto(variable).bands);
  }
  switch (decision.kind_case()) {
    case v1::Decision::kApply: {
      Apply apply;
      apply.version = decision.apply().version();
      apply.held = decision.apply().held();
      apply.last = decision.apply().last();
      CAIRN_ASSIGN_OR_RETURN(apply.contributors, ReadContributors(decision.apply().contributors(),
                                                                  apply.version, decision.index()));
      entry.what = std::move(apply);
      return entry;
    }
    case v1::Decision::kMeasure: {
      Measure measure;
      measure.version = decision.measure().version();
      CAIRN_ASSIGN_OR_RETURN(measure.contributors, ReadContributors(decision.measure().contributors(),
                                                                    measure.version, decision.index()));
      if (decision.measure().norms() != v1::NORMS_GRADIENT && decision.measure().norms() != v1::NORMS_LAYER) {
        return absl::InvalidArgumentError(
            absl::StrCat("decision ", decision.index(), " measures no known norms"));
      }
      measure.norms = decision.measure().norms() == v1::NORMS_GRADIENT ? Norms::kGradient : Norms::kLayer;
      entry.what = std::move(measure);
      return entry;
    }
    case v1::Decision::kRefuse:
      entry.what = Refuse{.key = FromProto(decision.refuse().key()),
                          .reason = ReasonOf(decision.refuse().outcome()),
                          .staleness = decision.refuse().staleness()};
      return entry;
    case v1::Decision::kRelease:
      entry.what = Release{.key = FromProto(decision.release())};
      return entry;
    case v1::Decision::kMark:
      entry.what = Mark{.token = decision.mark().token(), .snapshot = decision.mark().snapshot()};
      return entry;
    case v1::Decision::kAmendment:
      entry.what = AmendmentOf(decision.amendment());
      return entry;
    default:
      return absl::InvalidArgumentError(absl::StrCat("decision ", decision.index(), " is of no known kind"));
  }
}

}  // namespace cairn::ps
