#include "ps/work_proto.h"

namespace cairn::ps {

v1::Work ToProto(const Work& work) {
  v1::Work proto;
  for (const WorkItem& work_item : work.work_items) {
    v1::WorkItem& entry = *proto.add_work_items();
    entry.set_epoch(work_item.epoch);
    entry.set_first(work_item.first);
    entry.set_count(work_item.count);
  }
  proto.set_members(work.members);
  proto.set_over(work.over);
  return proto;
}

v1::DataPosition ToProto(const WorkPosition& position, const v1::Job& job, int server) {
  v1::DataPosition proto;
  proto.set_next(position.next);
  for (const WorkPosition::Run& run : position.open) {
    v1::DataPosition::Run& entry = *proto.add_open();
    entry.set_begin(run.begin);
    entry.set_count(run.count);
  }
  const v1::DataPosition& before = job.resumed().data();
  proto.set_missed(server == 0 ? before.missed() : 0);
  proto.set_repeated(position.repeated + (server == 0 ? before.repeated() : 0));
  proto.set_num_examples(job.num_examples());
  return proto;
}

WorkPosition FromProto(const v1::DataPosition& proto) {
  WorkPosition position = {.next = proto.next(), .open = {}};
  for (const v1::DataPosition::Run& run : proto.open()) position.open.push_back({run.begin(), run.count()});
  return position;
}

}  // namespace cairn::ps
