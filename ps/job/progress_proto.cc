#include "ps/job/progress_proto.h"

#include "ps/log/work_proto.h"

namespace cairn::ps {

v1::Counters CountersOf(ActiveJob& job, const UpdateCounters& updates) {
  v1::Counters proto;
  proto.set_accepted(updates.accepted);
  proto.set_stale(updates.stale);
  proto.set_staleness_max(updates.staleness_max);
  proto.set_examples(updates.examples);
  proto.mutable_staleness_histogram()->Add(updates.staleness_histogram.begin(),
                                           updates.staleness_histogram.end());
  const v1::Counters& before = job.job().resumed().counters();
  proto.set_duplicate(before.duplicate() + job.shard().duplicates());
  proto.set_rejected(before.rejected() + job.shard().rejected());
  return proto;
}

v1::Progress ProgressOf(ActiveJob& job, const Progress& progress, int server) {
  v1::Progress proto;
  proto.set_version(progress.version);
  *proto.mutable_counters() = CountersOf(job, progress.counters);
  if (progress.data.has_value()) {
    *proto.mutable_data() = ToProto(*progress.data, job.job(), server);
    return proto;
  }
  for (int worker = 0; worker < job.job().workers_size(); ++worker) {
    const auto found = progress.positions.find(worker);
    proto.add_positions(found == progress.positions.end() ? 0 : found->second);
  }
  return proto;
}

}  // namespace cairn::ps
