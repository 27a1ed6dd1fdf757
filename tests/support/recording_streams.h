// A server that records what its streams receive, and answers nothing.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "client/transport/transport.h"

namespace cairn::test {

class RecordingStreams final : public client::StreamFactory {
 public:
  struct Sent {
    v1::Chunk chunk;
    std::vector<float> values;  // of the payload, read as float32
    size_t runs;
  };

  std::unique_ptr<client::FrameStream> Open(client::FrameHandler& handler,
                                            const client::StopCheck&) override {
    opened = &handler;
    return std::make_unique<Stream>(*this, handler);
  }

  struct SentRows {
    v1::Rows rows;
    std::vector<float> payload;
  };

  std::vector<Sent> chunks;
  std::vector<SentRows> rows;
  client::FrameHandler* opened = nullptr;  // of the last stream

 private:
  class Stream final : public client::FrameStream {
   public:
    Stream(RecordingStreams& streams, client::FrameHandler& handler) : streams_(streams), handler_(handler) {}
    ~Stream() override { handler_.OnClosed(absl::OkStatus()); }
    void Send(const v1::ClientHeader& header, net::FloatSpans payload) override {
      if (header.has_rows()) {
        SentRows& sent = streams_.rows.emplace_back();
        sent.rows = header.rows();
        for (const auto& run : payload) sent.payload.insert(sent.payload.end(), run.begin(), run.end());
      }
      if (!header.has_chunk()) return;
      Sent sent = {header.chunk(), {}, payload.size()};
      for (const auto& run : payload) sent.values.insert(sent.values.end(), run.begin(), run.end());
      streams_.chunks.push_back(std::move(sent));
    }

   private:
    RecordingStreams& streams_;
    client::FrameHandler& handler_;
  };
};

}  // namespace cairn::test
