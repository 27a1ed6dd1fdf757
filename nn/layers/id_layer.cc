#include "nn/layers/id_layer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cairn::nn {

absl::StatusOr<Shape> IdLayer::OutputShape(absl::Span<const Shape> inputs) const {
  if (!encoding_) return inputs[0];
  return encoding_->OutputShape(inputs);
}

absl::StatusOr<std::unique_ptr<LayerOp>> IdLayer::MakeOp(const LayerOpParams& params,
                                                         kernels::Device& device) const {
  if (!encoding_) return absl::InternalError("a layer whose output is ids has no op");
  return encoding_->MakeOp(params, absl::StrCat("layer '", name(), "'"), device);
}

absl::StatusOr<OnnxValue> IdLayer::ToOnnx(absl::Span<const OnnxValue> inputs,
                                          absl::Span<const OnnxVariable> /*variables*/,
                                          OnnxBuilder& onnx) const {
  if (!encoding_) return inputs[0];
  return encoding_->ToOnnx(inputs, onnx);
}

std::string IdLayer::What(const std::string& name, const std::string& class_name) {
  return absl::StrCat("layer '", name, "' (", class_name, ")");
}

}  // namespace cairn::nn
