// The frames of one stream of Replicate (replicate.proto), put together to items at the server that keeps the
// copy; and an item taken apart to frames.
//
// Made and owned by the transport, for as long as the stream lives. OnFrame() from one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cairn/v1/replicate.pb.h"
#include "common/net/frame.h"
#include "ps/accumulator.h"
#include "ps/server.h"

namespace cairn::ps {

class CopySession {
 public:
  // `server` must outlive it.
  CopySession(Server& server, std::shared_ptr<CopySink> sink) : server_(server), sink_(std::move(sink)) {}
  ~CopySession() { server_.CopyClosed(sink_.get()); }

  // What ends the stream, if it is not OK: ABORTED, the copy has taken the place of who sends;
  // FAILED_PRECONDITION, there is no copy of it here; CANCELLED, only this stream has ended.
  absl::Status OnFrame(const v1::CopyHeader& header, net::Payload payload);

 private:
  absl::Status Take(const v1::CopyHeader& header, net::Payload payload);
  absl::Status OnItem(const v1::CopyItem& item);

  Server& server_;
  const std::shared_ptr<CopySink> sink_;
  std::shared_ptr<ActiveJob> job_;  // from the origin on
  // Of the item that is coming.
  std::string text_;
  std::unique_ptr<Accumulator> floats_;
};

// Calls send(header, payload, owner) for each frame of an item, in order; payloads are the owner's.
void SplitIntoFrames(uint64_t number, const CopyItem& item,
                     absl::FunctionRef<void(const v1::CopyHeader&, net::FloatSpans payload,
                                            const std::shared_ptr<const void>& owner)>
                         send);

}  // namespace cairn::ps
