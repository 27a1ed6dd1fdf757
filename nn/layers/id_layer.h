// A layer that makes ids of an input's values: StringLookup, IntegerLookup, Hashing, Discretization.
//
// The reader of the values applies the layer's map, so the input of the network has ids already (ModelInput::map). A
// layer whose `output_mode` is "int" is then no node of the network. Every other one encodes these ids.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids/id_map.h"
#include "nn/layer/layer.h"
#include "nn/layers/id_encoding.h"

namespace cairn::nn {

class IdLayer final : public Layer {
 public:
  // The constant members of the layer. Without an `encoding` the output is the ids.
  struct Parts {
    std::string name, class_name;
    std::shared_ptr<const IdMap> map;
    std::optional<IdEncoding> encoding{};
  };
  explicit IdLayer(Parts parts)
      : Layer(std::move(parts.name), std::move(parts.class_name)),
        map_(std::move(parts.map)),
        encoding_(std::move(parts.encoding)) {}

  const std::shared_ptr<const IdMap>& map() const { return map_; }
  bool encodes() const { return encoding_.has_value(); }

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override;
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool takes_integers() const override { return true; }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override;
  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override;

  // "layer 'city_ids' (StringLookup)", for the messages of its map.
  static std::string What(const std::string& name, const std::string& class_name);

 private:
  const std::shared_ptr<const IdMap> map_;
  const std::optional<IdEncoding> encoding_;
};

}  // namespace cairn::nn
