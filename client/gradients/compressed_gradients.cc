#include "client/gradients/compressed_gradients.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "common/net/wire/wire_choice.h"

namespace cairn::client {
namespace {

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
// Elements decoded at once, so that they stay in the first-level cache.
constexpr int64_t kPiece = 2048;

bool AllFinite(absl::Span<const float> values) {
  uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffff);
  return largest < 0x7f800000;
}

double SumOfSquares(absl::Span<const float> values) {
  std::array<double, 8> sums{};
  size_t i = 0;
  for (; i + sums.size() <= values.size(); i += sums.size()) {
    for (size_t lane = 0; lane < sums.size(); ++lane) {
      sums[lane] += static_cast<double>(values[i + lane]) * static_cast<double>(values[i + lane]);
    }
  }
  for (; i < values.size(); ++i) sums[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

absl::Span<const char> BytesOf(absl::Span<const float> payload) {
  return {reinterpret_cast<const char*>(payload.data()), payload.size() * sizeof(float)};
}

}  // namespace

CompressedGradients::CompressedGradients(const net::Layout& layout, std::vector<net::VariableInfo> variables,
                                         absl::Span<const v1::Encoding> encodings, double topk_fraction,
                                         WireMetrics* metrics)
    : layout_(layout),
      metrics_(metrics),
      compressed_(variables.size()),
      used_(static_cast<size_t>(layout.servers())),
      ready_(static_cast<size_t>(layout.servers())) {
  int64_t kept = 0;
  std::vector<int64_t> room(ready_.size());
  for (size_t i = 0; i < variables.size(); ++i) {
    Variable& variable = variables_.emplace_back();
    variable.codec = net::GradientCodecOf(encodings[i]);
    if (variable.codec == nullptr) continue;
    variable.encoding = encodings[i];
    variable.offset = variables[i].offset;
    variable.count = variables[i].shape.num_elements();
    variable.most = net::MostElements(topk_fraction, variable.count);
    if (variable.codec->wants_feedback()) {
      variable.kept_offset = kept;
      kept += variable.count;
    }
    const net::GradientCodec& codec = *variable.codec;
    std::vector<int64_t> needed(room.size());
    ForEachChunk(static_cast<int>(i), [&](int server, const net::Cut& cut, int64_t) {
      needed[static_cast<size_t>(server)] += codec.MostBytes(cut, variable.most) / kFloatBytes;
    });
    // The maximum size of the variable in the wire format, in floats, wherever its chosen elements are.
    const int64_t most = codec.MostBytes({0, variable.count}, variable.most) / kFloatBytes;
    const bool chosen = codec.block_elements() == 1;
    for (size_t server = 0; server < room.size(); ++server) {
      room[server] += chosen ? std::min(needed[server], most) : needed[server];
    }
  }
  kept_ = AlignedBuffer(kept);
  next_ = AlignedBuffer(kept);
  for (const int64_t floats : room) rooms_.emplace_back(floats);
}

template <typename Body>
void CompressedGradients::ForEachChunk(int variable, Body body) const {
  const Variable& of = variables_[static_cast<size_t>(variable)];
  for (const net::Extent& extent : layout_.extents_of(variable)) {
    const int64_t begin = extent.local_offset - of.offset, end = begin + extent.count;
    for (int64_t first = begin; first < end;) {
      const int64_t next =
          std::min(end, (first / of.codec->chunk_elements() + 1) * of.codec->chunk_elements());
      body(extent.server, net::Cut{first, next - first}, extent.server_offset + (first - begin));
      first = next;
    }
  }
}

void CompressedGradients::BeginStep() {
  std::fill(compressed_.begin(), compressed_.end(), false);
  std::fill(used_.begin(), used_.end(), 0);
  for (auto& chunks : ready_) chunks.clear();
}

bool CompressedGradients::Compress(int variable, absl::Span<const float> gradients) {
  const Variable& of = variables_[static_cast<size_t>(variable)];
  if (of.codec == nullptr) return false;
  const auto gradient = gradients.subspan(static_cast<size_t>(of.offset), static_cast<size_t>(of.count));
  if (!of.codec->wants_feedback()) {
    if (!AllFinite(gradient)) return false;
    Encode(variable, gradient);
    Subtract(variable, gradient, nullptr);
    return true;
  }
  const float* const kept = kept_.data() + of.kept_offset;
  float* const next = next_.data() + of.kept_offset;
  for (int64_t i = 0; i < of.count; ++i) next[i] = gradient[static_cast<size_t>(i)] + kept[i];
  const absl::Span<const float> whole(next, gradient.size());
  if (!AllFinite(whole)) return false;
  Encode(variable, whole);
  Subtract(variable, whole, next);
  return true;
}

void CompressedGradients::Encode(int variable, absl::Span<const float> whole) {
  const Variable& of = variables_[static_cast<size_t>(variable)];
  const net::Selection selection = of.codec->Select(whole, of.most);
  ForEachChunk(variable, [&](int server, const net::Cut& cut, int64_t server_offset) {
    const auto at = static_cast<size_t>(server);
    float* const to = rooms_[at].data() + used_[at];
    const int64_t floats = of.codec->Encode(whole, selection, cut, reinterpret_cast<char*>(to)) / kFloatBytes;
    used_[at] += floats;
    Ready& ready = ready_[at].emplace_back();
    ready.chunk.set_offset(server_offset);
    ready.chunk.set_encoding(of.encoding);
    ready.chunk.set_count(cut.count);
    ready.chunk.set_phase(static_cast<int32_t>(cut.first % of.codec->block_elements()));
    ready.payload = {to, static_cast<size_t>(floats)};
  });
  compressed_[static_cast<size_t>(variable)] = true;
}

void CompressedGradients::Subtract(int variable, absl::Span<const float> whole, float* missing) {
  const Variable& of = variables_[static_cast<size_t>(variable)];
  std::vector<size_t> next_chunk;  // [server]
  for (const auto& chunks : ready_) next_chunk.push_back(chunks.size());
  // The variable's chunks are the last ones of each server.
  ForEachChunk(variable,
               [&](int server, const net::Cut&, int64_t) { --next_chunk[static_cast<size_t>(server)]; });
  double squares = 0, missing_squares = 0;
  std::array<float, kPiece> piece;
  ForEachChunk(variable, [&](int server, const net::Cut& cut, int64_t) {
    const auto at = static_cast<size_t>(server);
    const Ready& ready = ready_[at][next_chunk[at]++];
    for (int64_t skip = 0; skip < cut.count; skip += kPiece) {
      const int64_t count = std::min(kPiece, cut.count - skip);
      const absl::Span<float> sent(piece.data(), static_cast<size_t>(count));
      of.codec->Decode(cut, BytesOf(ready.payload), skip, sent);
      const float* const from = whole.data() + cut.first + skip;
      squares += SumOfSquares({from, sent.size()});
      for (int64_t i = 0; i < count; ++i)
        piece[static_cast<size_t>(i)] = from[i] - piece[static_cast<size_t>(i)];
      missing_squares += SumOfSquares(sent);
      if (missing != nullptr) std::copy(sent.begin(), sent.end(), missing + cut.first + skip);
    }
  });
  if (metrics_ == nullptr) return;
  metrics_->squares.fetch_add(squares, std::memory_order_relaxed);
  metrics_->missing_squares.fetch_add(missing_squares, std::memory_order_relaxed);
}

void CompressedGradients::EndStep(const std::vector<bool>& counted) {
  for (size_t i = 0; i < variables_.size(); ++i) {
    const Variable& variable = variables_[i];
    if (!compressed_[i] || !variable.codec->wants_feedback()) continue;
    for (const net::Extent& extent : layout_.extents_of(static_cast<int>(i))) {
      if (!counted[static_cast<size_t>(extent.server)]) continue;
      const int64_t first = variable.kept_offset + (extent.local_offset - variable.offset);
      std::copy_n(next_.data() + first, extent.count, kept_.data() + first);
    }
  }
}

}  // namespace cairn::client
