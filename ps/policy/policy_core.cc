#include "ps/policy/policy_core.h"

#include <algorithm>

#include "common/core/status.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {
namespace {

v1::PolicyCounters ToProto(const UpdateCounters& counters) {
  v1::PolicyCounters proto;
  proto.set_accepted(counters.accepted);
  proto.set_examples(counters.examples);
  proto.set_stale(counters.stale);
  proto.set_refused_other(counters.refused_other);
  proto.set_duplicate(counters.duplicate);
  proto.set_staleness_max(counters.staleness_max);
  proto.mutable_staleness_histogram()->Add(counters.staleness_histogram.begin(),
                                           counters.staleness_histogram.end());
  return proto;
}

absl::StatusOr<UpdateCounters> FromProto(const v1::PolicyCounters& proto) {
  UpdateCounters counters = {.accepted = proto.accepted(),
                             .examples = proto.examples(),
                             .stale = proto.stale(),
                             .refused_other = proto.refused_other(),
                             .duplicate = proto.duplicate(),
                             .staleness_max = proto.staleness_max()};
  for (const int64_t count : {counters.accepted, counters.examples, counters.stale, counters.refused_other,
                              counters.duplicate, counters.staleness_max}) {
    CAIRN_RETURN_IF_ERROR(CheckCount("a counter", count));
  }
  auto& histogram = counters.staleness_histogram;
  for (int i = 0; i < proto.staleness_histogram_size() && i < static_cast<int>(histogram.size()); ++i) {
    CAIRN_RETURN_IF_ERROR(CheckCount("a counter", proto.staleness_histogram(i)));
    histogram[static_cast<size_t>(i)] = proto.staleness_histogram(i);
  }
  return counters;
}

}  // namespace

v1::PolicyCore PolicyCore::Save() const {
  v1::PolicyCore saved;
  saved.set_version(version);
  if (final_version.has_value()) saved.set_final_version(*final_version);
  roster.Save(*saved.mutable_roster());
  *saved.mutable_counters() = ToProto(counters);
  return saved;
}

absl::Status PolicyCore::Load(const v1::PolicyCore& saved, int most_workers) {
  CAIRN_RETURN_IF_ERROR(CheckCount("version", saved.version()));
  CAIRN_ASSIGN_OR_RETURN(const UpdateCounters counted, FromProto(saved.counters()));
  CAIRN_RETURN_IF_ERROR(roster.Load(saved.roster(), most_workers));
  version = saved.version();
  final_version.reset();
  if (saved.has_final_version()) final_version = saved.final_version();
  counters = counted;
  return absl::OkStatus();
}

}  // namespace cairn::ps
