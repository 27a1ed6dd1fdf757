#include "tests/bench/wire/peer_service.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cairn/v1/session.pb.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace cairn::bench {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

class Stream final : public grpc::ServerGenericBidiReactor {
 public:
  Stream() : chunk_(kChunk, 'x') { StartRead(&incoming_); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);
      return;
    }
    const size_t bytes = incoming_.Length();
    if (bytes != kEndBytes && bytes != kWantBytes) {
      StartRead(&incoming_);
      return;
    }
    left_ = 1;
    if (bytes == kWantBytes) {
      grpc::Slice slice;
      (void)incoming_.DumpToSingleSlice(&slice);
      std::memcpy(&left_, slice.begin(), sizeof left_);
    }
    WriteNext();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return;  // so does the read under way
    if (left_ > 0) {
      WriteNext();
    } else {
      StartRead(&incoming_);
    }
  }
  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    const size_t bytes = std::min<size_t>(left_, kChunk);
    left_ -= bytes;
    const grpc::Slice slice(chunk_.data(), bytes, grpc::Slice::STATIC_SLICE);
    outgoing_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&outgoing_);
  }

  const std::string chunk_;
  grpc::ByteBuffer incoming_, outgoing_;
  uint64_t left_ = 0;
};

class Naive final : public grpc::ServerGenericBidiReactor {
 public:
  Naive(bool push, std::vector<float>& sum) : push_(push), sum_(sum) { StartRead(&incoming_); }

  void OnReadDone(bool ok) override {
    v1::ClientFrame request;
    if (!ok ||
        !grpc::GenericDeserialize<grpc::ProtoBufferReader, v1::ClientFrame>(&incoming_, &request).ok()) {
      Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no request"));
      return;
    }
    v1::ServerFrame response;
    if (push_) {
      const std::string& payload = request.payload();
      sum_.resize(std::max(sum_.size(), payload.size() / sizeof(float)));
      const char* from = payload.data();
      for (size_t i = 0; i < payload.size() / sizeof(float); ++i) {
        float value;
        std::memcpy(&value, from + i * sizeof value, sizeof value);
        sum_[i] += value;
      }
    } else {
      response.mutable_payload()->assign(request.header().request_id(), 'x');
    }
    bool own;
    (void)grpc::GenericSerialize<grpc::ProtoBufferWriter, v1::ServerFrame>(response, &outgoing_, &own);
    StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  const bool push_;
  std::vector<float>& sum_;
  grpc::ByteBuffer incoming_, outgoing_;
};

class PeerService final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    if (context->method() == kStreamMethod) return new Stream;
    return new Naive(context->method() == kNaivePushMethod, sum_);
  }

 private:
  std::vector<float> sum_;  // one call of a measurement at a time is large
};

}  // namespace

std::unique_ptr<grpc::CallbackGenericService> MakePeerService() {
  return std::make_unique<PeerService>();
}

}  // namespace cairn::bench
