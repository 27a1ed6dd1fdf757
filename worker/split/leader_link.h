// A stage leader's stream to one stage worker. Private to stage_leader*.cc.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/split/stage_leader.h"

namespace cairn::split {

struct StageLeader::Link final : allreduce::RingHandler {
  Link(StageLeader& leader_in, size_t stage_worker_in)
      : leader(leader_in), stage_worker(stage_worker_in), heard(std::chrono::steady_clock::now()) {}

  absl::Status OnFrame(const v1::RingHeader& header, net::Payload payload) override {
    return leader.OnFrame(*this, header, payload);
  }
  void OnClosed(const absl::Status& status) override;

  const std::string& name() const { return leader.options_.stage_workers[stage_worker].name; }

  StageLeader& leader;
  const size_t stage_worker;
  // Guarded by leader.mutex_.
  TimePoint heard;
  absl::Status lost;  // why the link was lost; OK until then
  bool done = false;  // the stage worker has finished the current batch
  // [variable] The values that the stage worker has. Used by the main thread.
  std::map<int, std::shared_ptr<float[]>> known;
  std::unique_ptr<allreduce::RingStream> stream;  // destroyed before the members that it uses
};

}  // namespace cairn::split
