#include "ps/log/work_proto.h"

namespace cairn::ps {

v1::Work ToProto(const Work& work) {
  v1::Work proto;
  for (const WorkItem& work_item : work.work_items) *proto.add_work_items() = ToProto(work_item);
  proto.set_members(work.members);
  proto.set_over(work.over);
  return proto;
}

v1::DataPosition ToProto(const WorkPosition& position, const v1::Job& job, int server) {
  v1::DataPosition proto = ToProto(position);
  const v1::DataPosition& before = job.resumed().data();
  proto.set_missed(server == 0 ? before.missed() : 0);
  proto.set_repeated(position.repeated + (server == 0 ? before.repeated() : 0));
  proto.set_num_examples(job.num_examples());
  return proto;
}

}  // namespace cairn::ps
