// One gRPC message as a frame: the first byte gives the length of its slices.
#include "common/net/wire/frame.h"

#include <vector>

#include "cairn/v1/session.pb.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace cairn;

grpc::ByteBuffer Cut(absl::string_view message, size_t slice_bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < message.size(); at += slice_bytes) {
    const absl::string_view piece = message.substr(at, slice_bytes);
    slices.emplace_back(piece.data(), piece.size());
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string BytesOf(net::Payload payload) {
  std::string bytes(static_cast<size_t>(net::PayloadBytes(payload)), '\0');
  FUZZ_CHECK(net::CopyPayload(payload, bytes.data()).ok());
  return bytes;
}

template <typename Header>
void Decode(absl::string_view message, size_t slice_bytes) {
  Header header;
  net::DecodedFrame frame;
  const absl::Status status = frame.Decode(Cut(message, slice_bytes), &header);
  if (!status.ok()) {
    FUZZ_CHECK(!status.message().empty());
    return;
  }
  // A frame that is written from the fields reads as the same fields.
  std::string payload = BytesOf(frame.payload());
  if (payload.size() % sizeof(float) != 0) return;
  std::vector<float> floats(payload.size() / sizeof(float));
  FUZZ_CHECK(net::CopyPayload(frame.payload(), floats.data()).ok());
  const absl::Span<const float> run(floats);
  const grpc::ByteBuffer written = net::EncodeFrame(header, {&run, 1}, nullptr);
  Header header_again;
  net::DecodedFrame again;
  FUZZ_CHECK(again.Decode(written, &header_again).ok());
  FUZZ_CHECK(BytesOf(again.payload()) == payload);
  FUZZ_CHECK(header_again.SerializeAsString() == header.SerializeAsString());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view message = fuzz::TextOf(data + 1, size - 1);
  const size_t slice_bytes = size_t{1} + data[0];
  Decode<v1::ClientHeader>(message, slice_bytes);
  Decode<v1::ServerHeader>(message, slice_bytes);
  return 0;
}
