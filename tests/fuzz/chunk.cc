// The elements of one chunk. The first bytes give the encoding, the cut of the payload, the phase and the
// count; the rest is the payload.
#include <cmath>
#include <vector>

#include "common/net/wire/received_elements.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  if (size < 6) return 0;
  v1::Chunk chunk;
  chunk.set_encoding(static_cast<v1::Encoding>(data[0] % 8));
  chunk.set_phase(data[2] | (data[3] & 3) << 8);
  chunk.set_count(data[4] | data[5] << 8);
  const absl::Span<const char> payload(reinterpret_cast<const char*>(data + 6), size - 6);
  const size_t cut = payload.size() * data[1] / 255;
  const absl::Span<const char> runs[] = {payload.subspan(0, cut), payload.subspan(cut)};
  const auto elements = net::ReceivedElements::Of(chunk, net::Payload(runs));
  if (!elements.ok()) {
    FUZZ_CHECK(!elements.status().message().empty());
    return 0;
  }
  FUZZ_CHECK(elements->count() > 0);
  FUZZ_CHECK(elements->count() <= net::kMaxPayloadBytes);
  // Decodes all elements, and the second half alone, which must be equal.
  std::vector<float> whole(static_cast<size_t>(elements->count())), half(whole.size() / 2);
  FUZZ_CHECK(elements->Copy(0, absl::MakeSpan(whole)).ok());
  const size_t first = whole.size() - half.size();
  FUZZ_CHECK(elements->Copy(static_cast<int64_t>(first), absl::MakeSpan(half)).ok());
  for (size_t i = 0; i < half.size(); ++i) {
    FUZZ_CHECK(half[i] == whole[first + i] || (std::isnan(half[i]) && std::isnan(whole[first + i])));
  }
  // A scale times 128 may be more than a float can be.
  if (chunk.encoding() == v1::ENCODING_TOPK || chunk.encoding() == v1::ENCODING_ONEBIT) {
    for (const float value : whole) FUZZ_CHECK(std::isfinite(value));
  }
  return 0;
}
