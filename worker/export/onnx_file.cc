#include "worker/export/onnx_file.h"

#include <bit>
#include <limits>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cairn/onnx/v1/model.pb.h"
#include "common/core/status.h"
#include "common/flags/flags.h"
#include "nn/onnx_model.h"

namespace cairn::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

constexpr int64_t kIrVersion = 8;  // the first version that supports opset 17
constexpr int64_t kOpset = 17;
constexpr char kBatch[] = "batch";  // the name of the batch's extent, which is not fixed

void SetAttribute(const nn::OnnxAttribute& from, onnx::v1::Attribute& to) {
  to.set_name(from.name);
  if (const auto* i = std::get_if<int64_t>(&from.value)) {
    to.set_type(onnx::v1::Attribute::TYPE_INT);
    to.set_i(*i);
  } else if (const auto* f = std::get_if<float>(&from.value)) {
    to.set_type(onnx::v1::Attribute::TYPE_FLOAT);
    to.set_f(*f);
  } else {
    to.set_type(onnx::v1::Attribute::TYPE_INTS);
    const auto& ints = std::get<std::vector<int64_t>>(from.value);
    to.mutable_ints()->Add(ints.begin(), ints.end());
  }
}

void SetTensor(const nn::OnnxTensor& from, onnx::v1::Tensor& to) {
  to.set_name(from.name);
  for (const int64_t extent : from.shape.dims()) to.add_dims(extent);
  const auto set_values = [&to](onnx::v1::Tensor::DataType type, const auto& values) {
    to.set_data_type(type);
    to.set_raw_data(values.data(), values.size() * sizeof(values[0]));
  };
  if (const auto* floats = std::get_if<std::vector<float>>(&from.values)) {
    set_values(onnx::v1::Tensor::DATA_TYPE_FLOAT, *floats);
  } else {
    set_values(onnx::v1::Tensor::DATA_TYPE_INT64, std::get<std::vector<int64_t>>(from.values));
  }
}

void SetPort(const nn::OnnxGraph::Port& from, onnx::v1::ValueInfo& to) {
  to.set_name(from.name);
  auto& tensor = *to.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(static_cast<onnx::v1::Tensor::DataType>(nn::OnnxTypeOf(from.dtype)));
  tensor.mutable_shape()->add_dim()->set_dim_param(kBatch);
  if (from.ragged) {
    tensor.mutable_shape()->add_dim()->set_dim_param(absl::StrCat(from.name, "_longest"));
    return;
  }
  for (const int64_t extent : from.shape.dims()) tensor.mutable_shape()->add_dim()->set_dim_value(extent);
}

}  // namespace

absl::StatusOr<std::string> OnnxFile(const nn::Model& model, absl::Span<const float> parameters,
                                     const std::map<std::string, std::string>& metadata) {
  CAIRN_ASSIGN_OR_RETURN(const nn::OnnxGraph graph, nn::MakeOnnxGraph(model, parameters));
  onnx::v1::Model file;
  file.set_ir_version(kIrVersion);
  file.set_producer_name("cairn");
  file.set_producer_version(std::string(Version()));
  file.add_opset_import()->set_version(kOpset);
  for (const auto& [key, value] : metadata) {
    auto& property = *file.add_metadata_props();
    property.set_key(key);
    property.set_value(value);
  }
  onnx::v1::Graph& to = *file.mutable_graph();
  to.set_name(graph.name);
  for (const nn::OnnxGraph::Port& input : graph.inputs) SetPort(input, *to.add_input());
  SetPort(graph.output, *to.add_output());
  for (const nn::OnnxNode& from : graph.nodes) {
    onnx::v1::Node& node = *to.add_node();
    node.set_op_type(from.op_type);
    node.set_name(from.name);
    node.mutable_input()->Add(from.inputs.begin(), from.inputs.end());
    node.add_output(from.output);
    for (const nn::OnnxAttribute& attribute : from.attributes) SetAttribute(attribute, *node.add_attribute());
  }
  for (const nn::OnnxTensor& tensor : graph.constants) SetTensor(tensor, *to.add_initializer());
  if (file.ByteSizeLong() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::FailedPreconditionError(absl::StrCat("an .onnx file holds 2 GiB at most, and the model's ",
                                                      model.num_parameters(),
                                                      " parameters take more; .safetensors holds them"));
  }
  return file.SerializeAsString();
}

}  // namespace cairn::worker
