// CategoryEncoding: vectors that count the ids of an example.
#include <utility>

#include "absl/strings/str_cat.h"
#include "nn/layers/id_encoding.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class CategoryEncodingLayer final : public Layer {
 public:
  CategoryEncodingLayer(std::string name, IdEncoding encoding)
      : Layer(std::move(name), "CategoryEncoding"), encoding_(std::move(encoding)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    return encoding_.OutputShape(inputs);
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool takes_integers() const override { return true; }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    return encoding_.MakeOp(params, absl::StrCat("layer '", name(), "'"), device);
  }
  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    return encoding_.ToOnnx(inputs, onnx);
  }

 private:
  const IdEncoding encoding_;
};

}  // namespace

std::unique_ptr<Layer> MakeCategoryEncoding(std::string name, ConfigReader& config) {
  IdEncoding encoding = {.depth = config.PositiveInt("num_tokens")};
  CheckDepth("num_tokens", encoding.depth, config);
  encoding.mode = ModeOf(ReadOutputMode("multi_hot", /*allows_int=*/false, /*allows_tf_idf=*/false, config));
  config.Bool("sparse", false);  // how Keras stores the same numbers
  return std::make_unique<CategoryEncodingLayer>(std::move(name), std::move(encoding));
}

}  // namespace cairn::nn
