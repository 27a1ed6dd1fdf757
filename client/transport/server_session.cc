#include "client/transport/server_session.h"

#include <utility>

#include "common/core/status.h"

namespace cairn::client {

ServerSession::ServerSession(StreamFactory& streams, const StopCheck& stopped)
    : stream_(streams.Open(*this, stopped)) {}

ServerSession::~ServerSession() {
  stream_.reset();
}

absl::StatusOr<uint64_t> ServerSession::Begin(v1::ClientHeader header, std::unique_ptr<ChunkSink> values,
                                              OnDone on_done) {
  {
    MutexLock lock(mutex_);
    if (!status_.ok()) return status_;
    header.set_request_id(++last_id_);
    requests_[header.request_id()] = {std::move(values), std::move(on_done)};
  }
  stream_->Send(header, {});
  return header.request_id();
}

void ServerSession::SendChunk(uint64_t request_id, const v1::Chunk& chunk, net::FloatSpans payload) {
  v1::ClientHeader header;
  header.set_request_id(request_id);
  *header.mutable_chunk() = chunk;
  stream_->Send(header, payload);
}

void ServerSession::SendRows(uint64_t request_id, const v1::Rows& rows, net::FloatSpans payload) {
  v1::ClientHeader header;
  header.set_request_id(request_id);
  *header.mutable_rows() = rows;
  stream_->Send(header, payload);
}

void ServerSession::SendEnd(uint64_t request_id) {
  v1::ClientHeader header;
  header.set_request_id(request_id);
  header.mutable_end();
  stream_->Send(header, {});
}

absl::Status ServerSession::status() const {
  MutexLock lock(mutex_);
  return status_;
}

absl::Span<char> ServerSession::BeginFrame(const v1::ServerHeader& header, size_t bytes) {
  frame_ = &header;
  {
    MutexLock lock(mutex_);
    const auto found = requests_.find(header.request_id());
    frame_request_ = found == requests_.end() ? nullptr : &found->second;
  }
  if (frame_request_ == nullptr || frame_request_->values == nullptr) return {};
  if (!header.has_chunk() || bytes == 0 || bytes % sizeof(float) != 0) return {};
  const absl::Span<float> place =
      frame_request_->values->DestinationFor(header.chunk(), static_cast<int64_t>(bytes / sizeof(float)));
  return {reinterpret_cast<char*>(place.data()), place.size() * sizeof(float)};
}

void ServerSession::CompleteFrame(net::Payload payload) {
  if (frame_request_ == nullptr) return;
  absl::StatusOr<v1::Done> result;
  if (frame_->has_chunk() || frame_->has_rows()) {
    ChunkSink* const values = frame_request_->values.get();
    absl::Status status = absl::InternalError("values that were not requested");
    if (values != nullptr) {
      status = frame_->has_chunk() ? values->Add(frame_->chunk(), payload)
                                   : values->AddRows(frame_->rows(), payload);
    }
    if (status.ok()) return;
    result = std::move(status);
  } else if (const v1::Done& done = frame_->done(); done.code() != 0) {
    result = absl::Status(static_cast<absl::StatusCode>(done.code()), done.message());
  } else {
    result = done;
  }
  OnDone on_done = std::move(frame_request_->on_done);
  frame_request_ = nullptr;
  {
    MutexLock lock(mutex_);
    requests_.erase(frame_->request_id());
  }
  on_done(std::move(result));
}

void ServerSession::OnClosed(const absl::Status& status) {
  std::map<uint64_t, Request> abandoned;
  const absl::Status reason = status.ok() ? absl::CancelledError("the session was closed") : status;
  {
    MutexLock lock(mutex_);
    status_ = reason;
    abandoned.swap(requests_);
  }
  for (auto& [id, request] : abandoned) request.on_done(reason);
}

}  // namespace cairn::client
