#include "nn/layers/attention/attention_onnx.h"

#include <utility>

namespace cairn::nn {
namespace {

std::string Reshaped(const std::string& x, std::vector<int64_t> shape, OnnxBuilder& onnx) {
  return onnx.Add("Reshape", {x, onnx.Ints("shape", std::move(shape))});
}

}  // namespace

std::vector<std::string> MasksInOnnx(const AttentionCall& call, absl::Span<const OnnxValue> inputs,
                                     OnnxBuilder& onnx) {
  std::vector<std::string> masks;
  for (size_t i = 2; i < inputs.size(); ++i) {
    const std::string& argument = call.inputs[i];
    const Shape shape = onnx.ShapeOf(inputs[i]);
    if (argument == "key") continue;
    std::vector<int64_t> broadcast = {-1, 1, 1, shape[0]};
    if (argument == "attention_mask") broadcast = {-1, 1, shape[shape.rank() - 2], shape[shape.rank() - 1]};
    if (argument == "query_mask") broadcast = {-1, 1, shape[0], 1};
    masks.push_back(Reshaped(onnx.ChannelsLast(inputs[i]), std::move(broadcast), onnx));
  }
  return masks;
}

std::string QueryMaskInOnnx(OnnxValue mask, OnnxBuilder& onnx) {
  return Reshaped(onnx.ChannelsLast(mask), {-1, 1, onnx.ShapeOf(mask)[0], 1}, onnx);
}

std::string KeyMaskInOnnx(OnnxValue mask, OnnxBuilder& onnx) {
  return Reshaped(onnx.ChannelsLast(mask), {-1, 1, 1, onnx.ShapeOf(mask)[0]}, onnx);
}

std::string AttentionInOnnx(const kernels::AttentionParams& params, const OnnxProjections& inputs,
                            std::vector<std::string> masks, OnnxBuilder& onnx) {
  const int64_t queries = params.queries, keys = params.keys, group = params.heads / params.key_heads;
  // x [batch, length, heads * width], with the axes of [batch, length, heads, width] reordered.
  const auto by_heads = [&](const std::string& x, int64_t length, int64_t heads, int64_t width,
                            std::vector<int64_t> order) {
    return onnx.Add("Transpose", {Reshaped(x, {-1, length, heads, width}, onnx)},
                    {{"perm", std::move(order)}});
  };
  const bool has_scores = params.width == 0;
  // Heads that share a key head become additional queries of that key head.
  const auto grouped = [&](const std::string& x, int64_t width) {
    return group == 1 ? x : Reshaped(x, {-1, params.key_heads, group * queries, width}, onnx);
  };
  const std::string v = by_heads(inputs.v, keys, params.key_heads, params.value_width, {0, 2, 1, 3});
  std::string scores =
      by_heads(inputs.q, queries, params.heads, has_scores ? keys : params.width, {0, 2, 1, 3});
  if (!has_scores) {
    const std::string k = by_heads(inputs.k, keys, params.key_heads, params.width, {0, 2, 3, 1});
    scores = onnx.Add("MatMul", {grouped(scores, params.width), k});
    if (group > 1) scores = Reshaped(scores, {-1, params.heads, queries, keys}, onnx);
  }
  scores = onnx.Add("Mul", {scores, onnx.Scalar("scale", params.scale)});
  if (params.causal) {
    std::vector<float> sees;
    for (int64_t query = 0; query < queries; ++query) {
      for (int64_t key = 0; key < keys; ++key) sees.push_back(key <= query ? 1.0f : 0.0f);
    }
    masks.push_back(onnx.Floats("causal", {queries, keys}, std::move(sees)));
  }
  for (const std::string& mask : masks) {
    const std::string unseen = onnx.Add("Equal", {mask, onnx.Scalar("zero", 0)});
    scores = onnx.Add("Where", {unseen, onnx.Scalar("masked", kernels::kMaskedScore), scores});
  }
  const std::string weights = onnx.Add("Softmax", {scores}, {{"axis", int64_t{-1}}});
  std::string attended = onnx.Add("MatMul", {grouped(weights, keys), v});
  if (group > 1) attended = Reshaped(attended, {-1, params.heads, queries, params.value_width}, onnx);
  return Reshaped(onnx.Add("Transpose", {attended}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}),
                  {-1, queries, params.heads * params.value_width}, onnx);
}

}  // namespace cairn::nn
