#include "common/net/wire/frame.h"

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace cairn::net {
namespace {

static_assert(std::endian::native == std::endian::little,
              "payloads are little-endian floats in memory order");

constexpr uint8_t kHeaderTag = (1 << 3) | 2;   // field 1, length-delimited
constexpr uint8_t kPayloadTag = (2 << 3) | 2;  // field 2, length-delimited

// Reads a vector of slices as one stream, for protobuf.
class SliceStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit SliceStream(absl::Span<const grpc::Slice> slices) : slices_(slices) {}

  bool Next(const void** data, int* size) override {
    while (index_ < slices_.size() && offset_ == slices_[index_].size()) {
      ++index_;
      offset_ = 0;
    }
    if (index_ == slices_.size()) return false;
    *data = slices_[index_].begin() + offset_;
    *size = static_cast<int>(slices_[index_].size() - offset_);
    read_ += *size;
    offset_ = slices_[index_].size();
    return true;
  }
  void BackUp(int count) override {
    offset_ -= static_cast<size_t>(count);
    read_ -= count;
  }
  bool Skip(int count) override {
    const void* data;
    int size = 0;
    while (count > 0 && Next(&data, &size)) {
      if (size > count) {
        BackUp(size - count);
        size = count;
      }
      count -= size;
    }
    return count == 0;
  }
  int64_t ByteCount() const override { return read_; }

  // The rest of the slices as byte runs.
  void AppendRest(std::vector<absl::Span<const char>>* runs) const {
    for (size_t i = index_; i < slices_.size(); ++i) {
      const size_t skip = i == index_ ? offset_ : 0;
      if (slices_[i].size() == skip) continue;
      runs->emplace_back(reinterpret_cast<const char*>(slices_[i].begin()) + skip, slices_[i].size() - skip);
    }
  }

 private:
  absl::Span<const grpc::Slice> slices_;
  size_t index_ = 0;
  size_t offset_ = 0;  // bytes of slices_[index_] that have been read
  int64_t read_ = 0;
};

void ReleaseOwner(void* owner) {
  delete static_cast<std::shared_ptr<const void>*>(owner);
}

}  // namespace

int64_t PayloadBytes(Payload payload) {
  size_t bytes = payload.borrowed() != nullptr ? payload.borrowed()->size() : 0;
  for (const auto& run : payload.runs()) bytes += run.size();
  return static_cast<int64_t>(bytes);
}

absl::Status CopyPayload(Payload payload, void* to) {
  char* next = static_cast<char*>(to);
  if (payload.borrowed() != nullptr) return payload.borrowed()->Read(0, {next, payload.borrowed()->size()});
  for (const auto& run : payload.runs()) {
    if (run.empty()) continue;  // `to` may be null if the payload is empty
    std::memcpy(next, run.data(), run.size());
    next += run.size();
  }
  return absl::OkStatus();
}

grpc::ByteBuffer EncodeFrame(const google::protobuf::MessageLite& header, FloatSpans payload,
                             const std::shared_ptr<const void>& owner) {
  using google::protobuf::io::CodedOutputStream;
  size_t payload_bytes = 0;
  for (const auto& run : payload) payload_bytes += run.size() * sizeof(float);
  CAIRN_CHECK(payload_bytes <= static_cast<size_t>(kMaxPayloadBytes));

  const size_t header_bytes = header.ByteSizeLong();
  std::string front(header_bytes + 16, '\0');
  auto* const begin = reinterpret_cast<uint8_t*>(front.data());
  uint8_t* next = begin;
  *next++ = kHeaderTag;
  next = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(header_bytes), next);
  next = header.SerializeWithCachedSizesToArray(next);
  if (payload_bytes > 0) {
    *next++ = kPayloadTag;
    next = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(payload_bytes), next);
  }

  std::vector<grpc::Slice> slices;
  slices.reserve(1 + payload.size());
  slices.emplace_back(begin, static_cast<size_t>(next - begin));  // copies the bytes
  for (const auto& run : payload) {
    if (run.empty()) continue;
    const size_t bytes = run.size() * sizeof(float);
    if (owner == nullptr) {
      slices.emplace_back(run.data(), bytes, grpc::Slice::STATIC_SLICE);
    } else {
      slices.emplace_back(const_cast<float*>(run.data()), bytes, &ReleaseOwner,
                          new std::shared_ptr<const void>(owner));
    }
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status DecodedFrame::Decode(const grpc::ByteBuffer& message, google::protobuf::MessageLite* header) {
  slices_.clear();
  payload_.clear();
  if (!message.Dump(&slices_).ok()) return absl::InvalidArgumentError("frame: unreadable message");
  SliceStream stream(slices_);
  uint32_t payload_bytes = 0;
  {
    google::protobuf::io::CodedInputStream in(&stream);
    uint32_t header_bytes = 0;
    if (in.ReadTag() != kHeaderTag || !in.ReadVarint32(&header_bytes)) {
      return absl::InvalidArgumentError("frame: no header");
    }
    if (header_bytes > kMaxHeaderBytes) {
      return absl::InvalidArgumentError(absl::StrCat("frame: invalid header of ", header_bytes, " bytes"));
    }
    const auto limit = in.PushLimit(static_cast<int>(header_bytes));
    if (!header->ParseFromCodedStream(&in) || in.BytesUntilLimit() != 0) {
      return absl::InvalidArgumentError("frame: malformed header");
    }
    in.PopLimit(limit);
    const uint32_t tag = in.ReadTag();
    if (tag != 0 && (tag != kPayloadTag || !in.ReadVarint32(&payload_bytes))) {
      return absl::InvalidArgumentError("frame: something other than a payload follows the header");
    }
  }  // the destructor of `in` returns the bytes that it read ahead to `stream`
  stream.AppendRest(&payload_);
  if (payload_bytes > kMaxPayloadBytes || PayloadBytes(payload()) != payload_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame: payload of ", payload_bytes, " bytes announced, ",
                                                   PayloadBytes(payload()), " present"));
  }
  return absl::OkStatus();
}

}  // namespace cairn::net
