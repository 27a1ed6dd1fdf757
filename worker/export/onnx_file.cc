#include "worker/export/onnx_file.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "cairn/onnx/v1/model.pb.h"
#include "common/core/status.h"
#include "common/flags/flags.h"
#include "common/memory/out_of_memory.h"
#include "nn/onnx_model.h"
#include "worker/checkpoint/run_state.h"

namespace cairn::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

constexpr int64_t kIrVersion = 8;  // the first version that supports opset 17
constexpr int64_t kOpset = 17;
constexpr int64_t kMlOpset = 3;
constexpr int64_t kMaxBytes = std::numeric_limits<int32_t>::max();  // of a message of protobuf
constexpr char kBatch[] = "batch";  // the name of the batch's extent, which is not fixed

void SetAttribute(const nn::OnnxAttribute& from, onnx::v1::Attribute& to) {
  to.set_name(from.name);
  if (const auto* i = std::get_if<int64_t>(&from.value)) {
    to.set_type(onnx::v1::Attribute::TYPE_INT);
    to.set_i(*i);
  } else if (const auto* f = std::get_if<float>(&from.value)) {
    to.set_type(onnx::v1::Attribute::TYPE_FLOAT);
    to.set_f(*f);
  } else if (const auto* s = std::get_if<std::string>(&from.value)) {
    to.set_type(onnx::v1::Attribute::TYPE_STRING);
    to.set_s(*s);
  } else if (const auto* strings = std::get_if<std::vector<std::string>>(&from.value)) {
    to.set_type(onnx::v1::Attribute::TYPE_STRINGS);
    to.mutable_strings()->Add(strings->begin(), strings->end());
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
  tensor.set_elem_type(from.text ? onnx::v1::Tensor::DATA_TYPE_STRING
                                 : static_cast<onnx::v1::Tensor::DataType>(nn::OnnxTypeOf(from.dtype)));
  tensor.mutable_shape()->add_dim()->set_dim_param(kBatch);
  if (from.ragged) {
    tensor.mutable_shape()->add_dim()->set_dim_param(absl::StrCat(from.name, "_longest"));
    return;
  }
  for (const int64_t extent : from.shape.dims()) tensor.mutable_shape()->add_dim()->set_dim_value(extent);
}

// The rows that a table has in the file.
int64_t RowsOf(const TrainedTable& table) {
  return table.dynamic() ? static_cast<int64_t>(table.ids().size()) + 1 : table.description().vocabulary_size;
}

// [variable of the model] Its values: of the model without tables, or of a table. `memory` holds what they borrow.
std::vector<nn::OnnxVariable> VariablesWith(const TrainedTables& tables, const nn::Model& model,
                                            absl::Span<const float> parameters,
                                            std::vector<std::vector<float>>& memory) {
  std::map<std::string, nn::OnnxVariable> by_name;
  for (const nn::ModelVariable& variable : tables.plan.model.model.variables()) {
    by_name[variable.name] = {variable.name, variable.shape,
                              parameters.subspan(static_cast<size_t>(variable.offset),
                                                 static_cast<size_t>(variable.shape.num_elements()))};
  }
  memory.reserve(tables.tables.size());
  for (const TrainedTable& table : tables.tables) {
    const TableRun& run = table.description();
    const int64_t rows = RowsOf(table);
    std::vector<float>& values = memory.emplace_back(FloatVector(rows * run.dim, run.name));
    if (table.dynamic()) {
      std::fill(std::copy(table.rows().begin(), table.rows().end(), values.begin()), values.end(),
                static_cast<float>(run.center));
    } else {
      table.ReadAll(absl::MakeSpan(values));
    }
    by_name[run.name] = {run.name, Shape({rows, run.dim}), values, table.dynamic(), table.ids()};
  }
  std::vector<nn::OnnxVariable> variables;
  for (const nn::ModelVariable& variable : model.variables()) variables.push_back(by_name[variable.name]);
  return variables;
}

// FAILED_PRECONDITION if the values alone take more than a file holds.
absl::Status CheckSize(const nn::Model& model, const TrainedTables* tables) {
  if (tables == nullptr) return CheckOnnxSize(model.num_parameters());
  int64_t values = tables->plan.model.model.num_parameters();
  for (const TrainedTable& table : tables->tables) values += RowsOf(table) * table.dim();
  return CheckOnnxSize(values);
}

}  // namespace

absl::Status CheckOnnxSize(int64_t values) {
  if (values <= kMaxBytes / int64_t{sizeof(float)}) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("an .onnx file holds 2 GiB at most, and the model's ",
                                                    values, " values take more; .safetensors holds them"));
}

absl::StatusOr<std::string> OnnxFile(const nn::Model& model, absl::Span<const float> parameters,
                                     const std::map<std::string, std::string>& metadata,
                                     const TrainedTables* tables) {
  CAIRN_RETURN_IF_ERROR(CheckSize(model, tables));
  std::vector<std::vector<float>> memory;
  CAIRN_ASSIGN_OR_RETURN(const nn::OnnxGraph graph,
                         tables == nullptr
                             ? nn::MakeOnnxGraph(model, parameters)
                             : nn::MakeOnnxGraph(model, VariablesWith(*tables, model, parameters, memory)));
  onnx::v1::Model file;
  file.set_ir_version(kIrVersion);
  file.set_producer_name("cairn");
  file.set_producer_version(std::string(Version()));
  file.add_opset_import()->set_version(kOpset);
  if (absl::c_any_of(graph.nodes, [](const nn::OnnxNode& node) { return !node.domain.empty(); })) {
    auto& import = *file.add_opset_import();
    import.set_domain(nn::kOnnxMlDomain);
    import.set_version(kMlOpset);
  }
  for (const auto& [key, value] : metadata) {
    auto& property = *file.add_metadata_props();
    property.set_key(key);
    property.set_value(value);
  }
  onnx::v1::Graph& to = *file.mutable_graph();
  to.set_name(graph.name);
  for (const nn::OnnxGraph::Port& input : graph.inputs) SetPort(input, *to.add_input());
  for (const nn::OnnxGraph::Port& output : graph.outputs) SetPort(output, *to.add_output());
  for (const nn::OnnxNode& from : graph.nodes) {
    onnx::v1::Node& node = *to.add_node();
    node.set_op_type(from.op_type);
    node.set_domain(from.domain);
    node.set_name(from.name);
    node.mutable_input()->Add(from.inputs.begin(), from.inputs.end());
    node.add_output(from.output);
    for (const std::string& output : from.more_outputs) node.add_output(output);
    for (const nn::OnnxAttribute& attribute : from.attributes) SetAttribute(attribute, *node.add_attribute());
  }
  for (const nn::OnnxTensor& tensor : graph.constants) SetTensor(tensor, *to.add_initializer());
  if (file.ByteSizeLong() > static_cast<size_t>(kMaxBytes)) {
    return absl::FailedPreconditionError(
        "an .onnx file holds 2 GiB at most, and the model takes more; .safetensors holds it");
  }
  return file.SerializeAsString();
}

}  // namespace cairn::worker
