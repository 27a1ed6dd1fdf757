// A stream that a stage worker has accepted. Private to stage_worker*.cc.
#pragma once

#include <memory>
#include <utility>

#include "worker/split/stage_worker.h"

namespace cairn::split {

struct StageWorker::Inlet final : allreduce::RingHandler {
  Inlet(StageWorker& stage_worker_in, std::shared_ptr<allreduce::RingStream> back_in)
      : stage_worker(stage_worker_in), back(std::move(back_in)) {}

  absl::Status OnFrame(const v1::RingHeader& header, net::Payload payload) override {
    return stage_worker.OnFrame(*this, header, payload);
  }
  void OnClosed(const absl::Status& status) override {
    stage_worker.Lose(back.get(), std::string(status.message()));
  }

  StageWorker& stage_worker;
  const std::shared_ptr<allreduce::RingStream> back;
  bool greeted = false;  // true after Hello has arrived; used by the transport's threads
};

}  // namespace cairn::split
