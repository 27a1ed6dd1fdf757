// A stream that a stage worker has accepted. Only for partner*.cc.
#pragma once

#include <memory>
#include <utility>

#include "worker/split/partner.h"

namespace cairn::split {

struct Partner::Inlet final : allreduce::RingHandler {
  Inlet(Partner& partner_in, std::shared_ptr<allreduce::RingStream> back_in)
      : partner(partner_in), back(std::move(back_in)) {}

  absl::Status OnFrame(const v1::RingHeader& header, net::Payload payload) override {
    return partner.OnFrame(*this, header, payload);
  }
  void OnClosed(const absl::Status& status) override {
    partner.Lose(back.get(), std::string(status.message()));
  }

  Partner& partner;
  const std::shared_ptr<allreduce::RingStream> back;
  bool greeted = false;  // has received Hello. Used by threads of the transport
};

}  // namespace cairn::split
