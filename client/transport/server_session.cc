#include "client/transport/server_session.h"

#include <utility>

#include "common/core/status.h"

namespace cairn::client {

ServerSession::ServerSession(ServerStub& stub) : stream_(stub.OpenStream(*this)) {}

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

absl::Span<char> ServerSession::DestinationFor(const v1::ServerHeader& header, size_t bytes) {
  if (!header.has_chunk() || bytes == 0 || bytes % sizeof(float) != 0) return {};
  MutexLock lock(mutex_);
  const auto found = requests_.find(header.request_id());
  if (found == requests_.end() || found->second.values == nullptr) return {};
  const absl::Span<float> place =
      found->second.values->DestinationFor(header.chunk(), static_cast<int64_t>(bytes / sizeof(float)));
  return {reinterpret_cast<char*>(place.data()), place.size() * sizeof(float)};
}

void ServerSession::OnFrame(const v1::ServerHeader& header, net::Payload payload) {
  OnDone on_done;
  absl::StatusOr<v1::Done> result = header.done();
  {
    MutexLock lock(mutex_);
    const auto found = requests_.find(header.request_id());
    if (found == requests_.end()) return;  // the request failed here before its last frame arrived
    if (header.has_chunk()) {
      ChunkSink* const values = found->second.values.get();
      absl::Status status = values != nullptr ? values->Add(header.chunk(), payload)
                                              : absl::InternalError("values that were not requested");
      if (status.ok()) return;
      result = std::move(status);
    } else if (header.done().code() != 0) {
      result = absl::Status(static_cast<absl::StatusCode>(header.done().code()), header.done().message());
    }
    on_done = std::move(found->second.on_done);
    requests_.erase(found);
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
