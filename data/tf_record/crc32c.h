// CRC-32C (Castagnoli), in software: the checksum of TFRecord files.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace cairn::data {

uint32_t Crc32c(absl::Span<const uint8_t> bytes);

}  // namespace cairn::data
