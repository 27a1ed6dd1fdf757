// Where a session sends its answers.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/v1/session.pb.h"
#include "common/net/wire/frame.h"

namespace cairn::ps {

// Sends frames to the client. Thread-safe; frames arrive in the order of the calls. Frames sent after the end
// of the stream are dropped.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  // `owner` keeps the payload's memory alive and unchanged.
  virtual void Send(const v1::ServerHeader& header, net::FloatSpans payload,
                    const std::shared_ptr<const void>& owner) = 0;
  // As Send(), for a chunk of values, which may overtake other chunks. Of consecutive chunks that wait to be
  // sent, the chunk that is first in the arena may be sent first, because the next forward pass needs it
  // soonest.
  virtual void SendValues(const v1::ServerHeader& header, net::FloatSpans payload,
                          const std::shared_ptr<const void>& owner) {
    Send(header, payload, owner);
  }
  // Flow control: grants the client credit for more bytes of payload, as net::DataStream::Allow(). Does
  // nothing if the transport has no flow control.
  virtual void Allow(uint64_t /*bytes*/) {}
};

}  // namespace cairn::ps
