// A port to a sequencer that records what a shard reports.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ps/log/sequencer.h"

namespace cairn::ps {

class RecordingPort final : public SequencerPort {
 public:
  void ReportStaged(const Gradient& gradient) override { staged.push_back(gradient.key); }
  void ReportSums(Sums reported) override { sums.push_back(std::move(reported)); }
  void ReportExecuted(int64_t index) override { executed = index; }
  void ReportWaiting(int64_t index) override { waiting.push_back(index); }
  std::vector<PushKey> staged;
  std::vector<Sums> sums;
  int64_t executed = 0;
  std::vector<int64_t> waiting;
};

}  // namespace cairn::ps
