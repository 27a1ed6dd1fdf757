// How fast gradients are encoded and decoded, compared to memcpy of the same floats: GB/s of float32, in one
// thread.
//
//   codec_bench [--benchmark_filter=int8]
//
// 1 MiB of floats, which stay in a processor's caches, as a step's gradients do on their way. topk selects,
// encodes and decodes one in a hundred. `bytes` is the encoded size of an element.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "common/net/gradient/codec.h"
#include "common/net/wire/codec.h"

namespace cairn::net {
namespace {

constexpr int64_t kCount = int64_t{256} << 10;
constexpr int64_t kMaxSelected = kCount / 100;

std::vector<float> Gradient() {
  std::vector<float> values;
  Random random(1, "gradient");
  for (int64_t i = 0; i < kCount; ++i) {
    const float a = random.NextUniform() - 0.5f, b = random.NextUniform();
    values.push_back(a * b * b);
  }
  return values;
}

void Count(benchmark::State& state, int64_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * kCount *
                          static_cast<int64_t>(sizeof(float)));
  state.counters["bytes"] = static_cast<double>(bytes) / kCount;
}

void Memcpy(benchmark::State& state) {
  const std::vector<float> from = Gradient();
  std::vector<float> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  Count(state, kCount * static_cast<int64_t>(sizeof(float)));
}

void Encode16(benchmark::State& state, v1::Encoding encoding) {
  const std::vector<float> from = Gradient();
  std::vector<char> to(from.size() * 2);
  for (auto _ : state) {
    CodecOf(encoding)->Encode(from, to.data());
    benchmark::ClobberMemory();
  }
  Count(state, static_cast<int64_t>(to.size()));
}

void Decode16(benchmark::State& state, v1::Encoding encoding) {
  std::vector<float> values = Gradient();
  std::vector<char> from(values.size() * 2);
  CodecOf(encoding)->Encode(values, from.data());
  for (auto _ : state) {
    CodecOf(encoding)->Decode(from.data(), absl::MakeSpan(values));
    benchmark::ClobberMemory();
  }
  Count(state, static_cast<int64_t>(from.size()));
}

// All chunks of a variable, one after another.
struct Encoded {
  std::vector<char> bytes;
  std::vector<int64_t> ends;  // [chunk]
};

void EncodeAll(const GradientCodec& codec, const std::vector<float>& from, Encoded& to) {
  to.ends.clear();
  const Selection selection = codec.Select(from, kMaxSelected);
  int64_t at = 0;
  for (int64_t first = 0; first < kCount; first += codec.chunk_elements()) {
    at += codec.Encode(from, selection, {first, std::min(codec.chunk_elements(), kCount - first)},
                       to.bytes.data() + at);
    to.ends.push_back(at);
  }
}

void EncodeGradient(benchmark::State& state, v1::Encoding encoding) {
  const GradientCodec& codec = *GradientCodecOf(encoding);
  const std::vector<float> from = Gradient();
  Encoded to;
  to.bytes.resize(from.size() * 8);
  for (auto _ : state) {
    EncodeAll(codec, from, to);
    benchmark::ClobberMemory();
  }
  Count(state, to.ends.back());
}

// With the check, as a server does.
void DecodeGradient(benchmark::State& state, v1::Encoding encoding) {
  const GradientCodec& codec = *GradientCodecOf(encoding);
  std::vector<float> values = Gradient();
  Encoded from;
  from.bytes.resize(values.size() * 8);
  EncodeAll(codec, values, from);
  for (auto _ : state) {
    int64_t at = 0, first = 0;
    for (const int64_t end : from.ends) {
      const Cut cut = {first, std::min(codec.chunk_elements(), kCount - first)};
      const absl::Span<const char> payload(from.bytes.data() + at, static_cast<size_t>(end - at));
      if (!codec.Check(cut, payload).ok()) state.SkipWithError("what was encoded is refused");
      codec.Decode(
          cut, payload, 0,
          absl::MakeSpan(values).subspan(static_cast<size_t>(first), static_cast<size_t>(cut.count)));
      first += cut.count;
      at = end;
    }
    benchmark::ClobberMemory();
  }
  Count(state, from.ends.back());
}

}  // namespace
}  // namespace cairn::net

int main(int argc, char** argv) {
  using namespace cairn;
  benchmark::RegisterBenchmark("memcpy", net::Memcpy);
  for (const v1::Encoding encoding : {v1::ENCODING_BFLOAT16, v1::ENCODING_FLOAT16, v1::ENCODING_INT8,
                                      v1::ENCODING_TOPK, v1::ENCODING_ONEBIT}) {
    const bool alone = net::GradientCodecOf(encoding) != nullptr;
    const std::string name = net::EncodingName(encoding);
    benchmark::RegisterBenchmark((name + " encode").c_str(), alone ? net::EncodeGradient : net::Encode16,
                                 encoding);
    benchmark::RegisterBenchmark((name + " decode").c_str(), alone ? net::DecodeGradient : net::Decode16,
                                 encoding);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
