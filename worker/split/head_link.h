// A head's stream to one partner. Of head*.cc alone.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/split/head.h"

namespace cairn::split {

struct Head::Link final : allreduce::RingHandler {
  Link(Head& head_in, size_t partner_in)
      : head(head_in), partner(partner_in), heard(std::chrono::steady_clock::now()) {}

  absl::Status OnFrame(const v1::RingHeader& header, net::Payload payload) override {
    return head.OnFrame(*this, header, payload);
  }
  void OnClosed(const absl::Status& status) override;

  const std::string& name() const { return head.options_.partners[partner].name; }

  Head& head;
  const size_t partner;
  // Guarded by the head's mutex_.
  TimePoint heard;
  absl::Status lost;  // why; OK while it is there
  bool done = false;  // with the batch under way
  // The main thread's: what the partner has of each variable.
  std::map<int, std::shared_ptr<float[]>> known;
  std::unique_ptr<allreduce::RingStream> stream;  // ends before what it calls
};

}  // namespace cairn::split
