// PNG and JPEG: the header, and the pixels of small images.
#include "data/image/image.h"

#include <vector>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  const absl::Span<const uint8_t> bytes(data, size);
  const auto header = data::ReadImageHeader(bytes);
  if (!header.ok()) {
    FUZZ_CHECK(!header.status().message().empty());
    return 0;
  }
  constexpr int64_t kMaxPixels = 1 << 16;
  if (header->height * header->width > kMaxPixels || header->height * header->width == 0) return 0;
  for (const int64_t channels : {int64_t{1}, int64_t{3}, header->channels}) {
    const Shape shape = {header->height, header->width, channels};
    std::vector<uint8_t> pixels(static_cast<size_t>(shape.num_elements()));
    const absl::Status decoded = data::DecodeImage(bytes, shape, absl::MakeSpan(pixels));
    FUZZ_CHECK(decoded.ok() || !decoded.message().empty());
  }
  return 0;
}
