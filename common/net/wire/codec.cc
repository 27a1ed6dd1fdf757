#include "common/net/wire/codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/gradient/codec.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cairn::net {
namespace {

constexpr size_t kElementBytes = 2;
constexpr float kLargestFloat16 = 65504;

constexpr std::pair<v1::Encoding, const char*> kNames[] = {
    {v1::ENCODING_FLOAT32, "float32"}, {v1::ENCODING_BFLOAT16, "bfloat16"}, {v1::ENCODING_FLOAT16, "float16"},
    {v1::ENCODING_INT8, "int8"},       {v1::ENCODING_TOPK, "topk"},         {v1::ENCODING_ONEBIT, "onebit"}};

class Bfloat16 final : public Codec {
 public:
  void Encode(absl::Span<const float> values, char* to) const override {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto bits = std::bit_cast<uint32_t>(values[i]);
      // Rounding would carry a NaN's low bits into the sign.
      const bool nan = (bits & 0x7fffffff) > 0x7f800000;
      const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
      const auto half = static_cast<uint16_t>((nan ? bits | 0x400000 : rounded) >> 16);
      std::memcpy(to + i * kElementBytes, &half, kElementBytes);
    }
  }
  void Decode(const char* from, absl::Span<float> values) const override {
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, from + i * kElementBytes, kElementBytes);
      values[i] = std::bit_cast<float>(uint32_t{half} << 16);
    }
  }
};

// Clamps finite numbers to the range of float16.
float Saturated(float value) {
  return std::isfinite(value) ? std::clamp(value, -kLargestFloat16, kLargestFloat16) : value;
}

uint16_t ToFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(Saturated(value));
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);   // NaN
  if (magnitude == 0x7f800000) return static_cast<uint16_t>(sign | 0x7c00);  // infinity
  if (magnitude < 0x38800000) {  // below 2^-14: the addition rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

float FromFloat16(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | ((magnitude & 0x3ff) << 13));
  if (magnitude < 0x400) {
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
}

// EncodeByEight() and DecodeByEight() need HasFloat16(). They convert eight numbers at a time and return how
// many they have converted.
#if defined(__x86_64__)
bool HasFloat16() {
  static const bool has = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return has;
}
__attribute__((target("avx,f16c"))) size_t EncodeByEight(absl::Span<const float> values, char* to) {
  const __m256 largest = _mm256_set1_ps(kLargestFloat16), least = _mm256_set1_ps(-kLargestFloat16);
  const __m256 infinity = _mm256_set1_ps(std::numeric_limits<float>::infinity());
  const __m256 no_sign = _mm256_set1_ps(-0.0f);
  size_t i = 0;
  for (; i + 8 <= values.size(); i += 8) {
    const __m256 value = _mm256_loadu_ps(values.data() + i);
    const __m256 finite = _mm256_cmp_ps(_mm256_andnot_ps(no_sign, value), infinity, _CMP_LT_OQ);
    const __m256 clamped = _mm256_max_ps(_mm256_min_ps(value, largest), least);
    const __m128i half = _mm256_cvtps_ph(_mm256_blendv_ps(value, clamped, finite), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * kElementBytes), half);
  }
  return i;
}
__attribute__((target("avx,f16c"))) size_t DecodeByEight(const char* from, absl::Span<float> values) {
  size_t i = 0;
  for (; i + 8 <= values.size(); i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * kElementBytes));
    _mm256_storeu_ps(values.data() + i, _mm256_cvtph_ps(half));
  }
  return i;
}
#else
bool HasFloat16() {
  return false;
}
size_t EncodeByEight(absl::Span<const float>, char*) {
  return 0;
}
size_t DecodeByEight(const char*, absl::Span<float>) {
  return 0;
}
#endif

class Float16 final : public Codec {
 public:
  void Encode(absl::Span<const float> values, char* to) const override {
    for (size_t i = HasFloat16() ? EncodeByEight(values, to) : 0; i < values.size(); ++i) {
      const uint16_t half = ToFloat16(values[i]);
      std::memcpy(to + i * kElementBytes, &half, kElementBytes);
    }
  }
  void Decode(const char* from, absl::Span<float> values) const override {
    for (size_t i = HasFloat16() ? DecodeByEight(from, values) : 0; i < values.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, from + i * kElementBytes, kElementBytes);
      values[i] = FromFloat16(half);
    }
  }
};

int64_t BytesOf(const v1::Chunk& chunk) {
  return Codec::Floats(chunk.count()) * static_cast<int64_t>(sizeof(float));
}

// Calls body(run) for each run that contains some of the bytes [first, first + count) of the payload.
template <typename Body>
void ForEachRun(Payload payload, size_t first, size_t count, Body body) {
  for (const auto& run : payload.runs()) {
    if (count == 0) return;
    if (first >= run.size()) {
      first -= run.size();
      continue;
    }
    const auto part = run.subspan(first, count);
    body(part);
    count -= part.size();
    first = 0;
  }
}

}  // namespace

const Codec* CodecOf(v1::Encoding encoding) {
  static const Bfloat16 bfloat16;
  static const Float16 float16;
  switch (encoding) {
    case v1::ENCODING_BFLOAT16:
      return &bfloat16;
    case v1::ENCODING_FLOAT16:
      return &float16;
    default:
      return nullptr;
  }
}

absl::Status CheckEncoding(v1::Encoding encoding) {
  if (encoding == v1::ENCODING_FLOAT32 || CodecOf(encoding) != nullptr) return absl::OkStatus();
  if (GradientCodecOf(encoding) != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("values cannot be sent in ", EncodingName(encoding)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("encoding ", static_cast<int>(encoding), " is unknown here"));
}

const char* EncodingName(v1::Encoding encoding) {
  for (const auto& [known, name] : kNames) {
    if (known == encoding) return name;
  }
  return "float32";
}

std::optional<v1::Encoding> EncodingOf(absl::string_view name) {
  for (const auto& [encoding, known] : kNames) {
    if (name == known) return encoding;
  }
  return std::nullopt;
}

absl::StatusOr<int64_t> CountElements(const v1::Chunk& chunk, Payload payload) {
  const int64_t bytes = PayloadBytes(payload);
  if (chunk.encoding() == v1::ENCODING_FLOAT32) {
    if (bytes == 0 || bytes % static_cast<int64_t>(sizeof(float)) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("a chunk of ", bytes, " bytes is not a list of floats"));
    }
    return bytes / static_cast<int64_t>(sizeof(float));
  }
  CAIRN_RETURN_IF_ERROR(CheckEncoding(chunk.encoding()));
  if (chunk.count() <= 0 || chunk.count() > kMaxPayloadBytes || bytes != BytesOf(chunk)) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk of ", bytes, " bytes is not a list of ",
                                                   chunk.count(), " numbers in ",
                                                   EncodingName(chunk.encoding())));
  }
  return chunk.count();
}

absl::Status CopyElements(const v1::Chunk& chunk, Payload payload, int64_t first, absl::Span<float> to) {
  const Codec* const codec = CodecOf(chunk.encoding());
  if (codec == nullptr) {
    char* out = reinterpret_cast<char*>(to.data());
    if (payload.borrowed() != nullptr) {
      return payload.borrowed()->Read(static_cast<size_t>(first) * sizeof(float),
                                      {out, to.size() * sizeof(float)});
    }
    ForEachRun(payload, static_cast<size_t>(first) * sizeof(float), to.size() * sizeof(float),
               [&out](absl::Span<const char> run) {
                 // The bytes may already be in place.
                 if (run.data() != out) std::memcpy(out, run.data(), run.size());
                 out += run.size();
               });
    return absl::OkStatus();
  }
  if (payload.borrowed() != nullptr) {
    const std::unique_ptr<char[]> here(new char[to.size() * kElementBytes]);
    CAIRN_RETURN_IF_ERROR(payload.borrowed()->Read(static_cast<size_t>(first) * kElementBytes,
                                                   {here.get(), to.size() * kElementBytes}));
    codec->Decode(here.get(), to);
    return absl::OkStatus();
  }
  // A run may end in the middle of an element.
  char element[kElementBytes];
  size_t have = 0, done = 0;
  ForEachRun(payload, static_cast<size_t>(first) * kElementBytes, to.size() * kElementBytes,
             [&](absl::Span<const char> run) {
               if (have == 1) {
                 element[1] = run.front();
                 run.remove_prefix(1);
                 codec->Decode(element, to.subspan(done++, 1));
                 have = 0;
               }
               const size_t whole = run.size() / kElementBytes;
               codec->Decode(run.data(), to.subspan(done, whole));
               done += whole;
               if (run.size() % kElementBytes != 0) {
                 element[0] = run.back();
                 have = 1;
               }
             });
  return absl::OkStatus();
}

}  // namespace cairn::net
