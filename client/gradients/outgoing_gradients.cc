#include "client/gradients/outgoing_gradients.h"

#include <algorithm>

#include "client/transport/request.h"
#include "common/net/gradient/codec.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/wire_choice.h"

namespace cairn::client {
namespace {

// Gradients are sent when this many elements of a server have been announced (256 KiB). Each send wakes
// threads on both sides, which takes the core from the computation: with 64 KiB, a cluster training small
// networks was a tenth slower.
constexpr int64_t kSendElements = int64_t{64} << 10;

}  // namespace

OutgoingGradients::OutgoingGradients(const v1::Job& job, const net::Layout& layout,
                                     const std::vector<net::VariableInfo>& variables, WireMetrics* metrics)
    : layout_(layout),
      variables_(variables),
      metrics_(metrics),
      encodings_(net::GradientEncodings(job, variables)),
      queues_(static_cast<size_t>(layout.servers())) {
  bool in_16_bits = false, compresses = false;
  for (const v1::Encoding encoding : encodings_) {
    in_16_bits |= net::CodecOf(encoding) != nullptr;
    compresses |= net::GradientCodecOf(encoding) != nullptr;
  }
  for (int server = 0; server < layout.servers(); ++server) {
    encoded_.emplace_back(in_16_bits ? layout.arena_size(server) : 0);
  }
  if (!compresses) return;
  compressed_ =
      std::make_unique<CompressedGradients>(layout, variables, encodings_, job.topk_fraction(), metrics);
  for (v1::Encoding& encoding : encodings_) {
    if (net::GradientCodecOf(encoding) != nullptr) encoding = v1::ENCODING_FLOAT32;
  }
}

void OutgoingGradients::BeginStep(absl::Span<const float> gradients) {
  gradients_ = gradients;
  if (compressed_ != nullptr) compressed_->BeginStep();
}

void OutgoingGradients::BeginPush(int server) {
  queue(server) = {};
}

void OutgoingGradients::Announce(int variable, absl::FunctionRef<void(int server)> send) {
  const bool compressed = compressed_ != nullptr && compressed_->Compress(variable, gradients_);
  for (const net::Extent& extent : layout_.extents_of(variable)) {
    if (!compressed) Add(extent, encodings_[static_cast<size_t>(variable)]);
    if (QueuedElements(extent.server) >= kSendElements) send(extent.server);
  }
}

void OutgoingGradients::QueueAll(int server) {
  for (size_t variable = 0; variable < variables_.size(); ++variable) {
    if (compressed_ != nullptr && compressed_->compressed(static_cast<int>(variable))) continue;
    for (const net::Extent& extent : layout_.extents_of(static_cast<int>(variable))) {
      if (extent.server == server) Add(extent, encodings_[variable]);
    }
  }
}

void OutgoingGradients::Add(const net::Extent& extent, v1::Encoding encoding) {
  Queue& queue = this->queue(extent.server);
  queue.extents[encoding].push_back(extent);
  queue.elements += extent.count;
}

int64_t OutgoingGradients::QueuedElements(int server) const {
  const Queue& queue = queues_[static_cast<size_t>(server)];
  int64_t elements = queue.elements;
  if (compressed_ == nullptr) return elements;
  const auto& ready = compressed_->ready(server);
  for (size_t i = queue.compressed_sent; i < ready.size(); ++i) {
    elements += static_cast<int64_t>(ready[i].payload.size());
  }
  return elements;
}

bool OutgoingGradients::queued(int server) const {
  const Queue& queue = queues_[static_cast<size_t>(server)];
  // A compressed gradient of zeros may have a chunk without a payload.
  return queue.elements > 0 ||
         (compressed_ != nullptr && queue.compressed_sent < compressed_->ready(server).size());
}

int64_t OutgoingGradients::Send(int server, ServerSession& session, uint64_t request_id) {
  Queue& queue = this->queue(server);
  int64_t bytes = 0, elements = queue.elements;
  if (compressed_ != nullptr) {
    const auto& ready = compressed_->ready(server);
    for (; queue.compressed_sent < ready.size(); ++queue.compressed_sent) {
      const CompressedGradients::Ready& next = ready[queue.compressed_sent];
      session.SendChunk(request_id, next.chunk, {&next.payload, 1});
      bytes += static_cast<int64_t>(next.payload.size()) * 4;
      elements += next.chunk.count();
    }
  }
  for (auto& [encoding, extents] : queue.extents) {
    for (const net::Extent& extent : extents)
      bytes += extent.count * (encoding == v1::ENCODING_FLOAT32 ? 4 : 2);
    std::sort(extents.begin(), extents.end(),
              [](const net::Extent& a, const net::Extent& b) { return a.server_offset < b.server_offset; });
    SendExtents(session, request_id, extents, gradients_,
                {.encoding = encoding, .room = encoded_[static_cast<size_t>(server)].span()});
    extents.clear();
  }
  queue.elements = 0;
  if (metrics_ != nullptr) {
    metrics_->push_bytes.Add(bytes);
    metrics_->push_float32_bytes.Add(elements * 4);
  }
  return bytes;
}

void OutgoingGradients::EndStep(const std::vector<bool>& counted) {
  if (compressed_ != nullptr) compressed_->EndStep(counted);
}

}  // namespace cairn::client
