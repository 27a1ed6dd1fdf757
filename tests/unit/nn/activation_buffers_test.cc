// Which outputs of layers share memory, and that no backward pass misses what was written over.
#include "nn/replica/activation_buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "kernels/cpu/device.h"
#include "kernels/cuda/device.h"
#include "nn/replica/step_graph.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

// A ReLU after a normalization, in a residual block.
constexpr char kBlock[] = R"({"class_name": "Functional", "config": {"name": "block", "layers": [
    {"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_shape": [null, 6]}, "inbound_nodes": []},
    {"class_name": "Dense", "name": "a", "config": {"name": "a", "units": 8}, "inbound_nodes": [[["x", 0, 0, {}]]]},
    {"class_name": "BatchNormalization", "name": "norm", "config": {"name": "norm"},
     "inbound_nodes": [[["a", 0, 0, {}]]]},
    {"class_name": "ReLU", "name": "relu", "config": {"name": "relu"}, "inbound_nodes": [[["norm", 0, 0, {}]]]},
    {"class_name": "Dense", "name": "b", "config": {"name": "b", "units": 8}, "inbound_nodes": [[["relu", 0, 0, {}]]]},
    {"class_name": "Add", "name": "sum", "config": {"name": "sum"},
     "inbound_nodes": [[["relu", 0, 0, {}], ["b", 0, 0, {}]]]},
    {"class_name": "ReLU", "name": "end", "config": {"name": "end"}, "inbound_nodes": [[["sum", 0, 0, {}]]]},
    {"class_name": "Dense", "name": "c", "config": {"name": "c", "units": 8}, "inbound_nodes": [[["end", 0, 0, {}]]]},
    {"class_name": "Dense", "name": "d", "config": {"name": "d", "units": 1}, "inbound_nodes": [[["c", 0, 0, {}]]]}],
    "input_layers": [["x", 0, 0]], "output_layers": [["d", 0, 0]]}})";

class ActivationBuffersTest : public testing::Test {
 protected:
  void Load(const std::string& json) {
    model_ = std::make_unique<Model>(Model::FromJson(json, "m").value());
    graph_ =
        BuildStepGraph(*model_, WholeModel(*model_), {.batch = 4}, *device_, /*recorder=*/nullptr).value();
  }
  const float* MemoryOf(const std::string& layer) {
    for (const StepGraph::Step& step : graph_.steps) {
      if (step.what == "layer '" + layer + "'") return graph_.output_of(step).memory;
    }
    ADD_FAILURE() << "there is no " << layer;
    return nullptr;
  }

  const std::unique_ptr<kernels::Device> device_ = kernels::CreateCpuDevice(0, 1).value();
  std::unique_ptr<Model> model_;
  StepGraph graph_;
};

TEST_F(ActivationBuffersTest, AReluWritesOverTheNormalizationBeforeIt) {
  Load(kBlock);
  EXPECT_EQ(MemoryOf("relu"), MemoryOf("norm"));
  EXPECT_NE(MemoryOf("norm"), MemoryOf("a")) << "the normalization's backward pass reads its input";
}

TEST_F(ActivationBuffersTest, AValueThatNoBackwardPassReadsMakesRoomForLaterOnes) {
  Load(kBlock);
  EXPECT_EQ(MemoryOf("sum"), MemoryOf("end"));
  EXPECT_NE(MemoryOf("sum"), MemoryOf("relu")) << "the second dense layer reads it in the backward pass";
  EXPECT_EQ(MemoryOf("c"), MemoryOf("b")) << "b is not needed after the sum";
}

TEST_F(ActivationBuffersTest, TheOutputOfTheModelIsKept) {
  Load(SequentialOf(R"({"class_name": "Dense", "config": {"name": "a", "units": 2, "input_shape": [3]}},
                       {"class_name": "ReLU", "config": {"name": "r"}})"));
  EXPECT_EQ(graph_.values.back().memory, MemoryOf("r"));
  const std::string two = R"({"class_name": "Functional", "config": {"name": "two", "layers": [
      {"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_shape": [null, 3]}, "inbound_nodes": []},
      {"class_name": "Dense", "name": "a", "config": {"name": "a", "units": 2}, "inbound_nodes": [[["x", 0, 0, {}]]]},
      {"class_name": "ReLU", "name": "r", "config": {"name": "r"}, "inbound_nodes": [[["a", 0, 0, {}]]]}],
      "input_layers": [["x", 0, 0]], "output_layers": [["a", 0, 0], ["r", 0, 0]]}})";
  Load(two);
  EXPECT_NE(MemoryOf("a"), MemoryOf("r")) << "both are outputs";
}

// --- What the backward pass of a layer reads ---

struct BackwardReadCase {
  std::string name, layer;
  std::string input;  // shape
  size_t inputs = 1;
};

void PrintTo(const BackwardReadCase& of, std::ostream* out) {
  *out << of.name;
}

std::string ModelOf(const BackwardReadCase& of) {
  std::string layers, tensors;
  for (size_t i = 0; i < of.inputs; ++i) {
    absl::StrAppend(&layers, R"({"class_name": "InputLayer", "name": "x)", i, R"(", "config": {"name": "x)",
                    i, R"(", "batch_shape": [null, )", of.input, R"(]}, "inbound_nodes": []}, )");
    absl::StrAppend(&tensors, i == 0 ? "" : ", ", R"(["x)", i, R"(", 0, 0, {}])");
  }
  std::string inputs;
  for (size_t i = 0; i < of.inputs; ++i)
    absl::StrAppend(&inputs, i == 0 ? "" : ", ", R"(["x)", i, R"(", 0, 0])");
  return absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [)", layers,
                      R"({"name": "y", )", of.layer, R"(, "inbound_nodes": [[)", tensors,
                      R"(]]}], "input_layers": [)", inputs, R"(], "output_layers": [["y", 0, 0]]}})");
}

class BackwardReadsTest : public testing::TestWithParam<BackwardReadCase> {
 protected:
  using Memory = std::unique_ptr<kernels::DeviceMemory>;

  Memory Put(const std::vector<float>& values) {
    Memory memory = device_->Allocate(static_cast<int64_t>(values.size()), "test").value();
    Set(*memory, values);
    return memory;
  }
  void Set(kernels::DeviceMemory& memory, const std::vector<float>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    EXPECT_TRUE(device_->CopyToDevice(values.data(), memory.data(), bytes).ok());
    EXPECT_TRUE(device_->Synchronize().ok());
  }
  std::vector<float> Get(kernels::DeviceMemory& memory) {
    std::vector<float> values(static_cast<size_t>(memory.num_floats()));
    EXPECT_TRUE(
        device_->CopyToHost(memory.data(), values.data(), static_cast<int64_t>(values.size() * sizeof(float)))
            .ok());
    EXPECT_TRUE(device_->Synchronize().ok());
    return values;
  }
  static std::vector<float> Random(int64_t count, const char* purpose) {
    cairn::Random random(1, purpose);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = 2 * random.NextUniform() - 1;
    return values;
  }

  // Compares the gradients with those computed after what the op says it does not read has become NaN.
  void Check() {
    const Model model = Model::FromJson(ModelOf(GetParam()), "m").value();
    const Node& node = model.nodes().back();
    std::vector<kernels::TensorDesc> descs;
    for (const ModelInput& input : model.inputs()) {
      Shape shape = {4};
      for (const int64_t extent : input.shape.dims()) shape.Append(extent);
      descs.push_back({.shape = shape});
    }
    const auto op = node.layer->MakeOp({.inputs = descs}, *device_).value();
    std::vector<Memory> inputs, input_gradients, variables, gradients;
    for (const kernels::TensorDesc& desc : descs) {
      inputs.push_back(Put(Random(desc.num_floats(), "x")));
      input_gradients.push_back(Put(std::vector<float>(static_cast<size_t>(desc.num_floats()))));
    }
    const std::vector<float> parameters = model.InitialParameters(1);
    for (const int index : node.variables) {
      const ModelVariable& variable = model.variables()[static_cast<size_t>(index)];
      const auto begin = parameters.begin() + variable.offset;
      const std::vector<float> values(begin, begin + variable.shape.num_elements());
      variables.push_back(Put(values));
      gradients.push_back(Put(values));
    }
    const auto output = Put(std::vector<float>(static_cast<size_t>(op->output().num_floats())));
    const auto output_gradient = Put(Random(op->output().num_floats(), "dy"));
    const auto pointers = [](const std::vector<Memory>& memory) {
      std::vector<float*> all;
      for (const Memory& each : memory) all.push_back(each->data());
      return all;
    };
    const std::vector<float*> xs = pointers(inputs), dxs = pointers(input_gradients),
                              ws = pointers(variables), dws = pointers(gradients);
    const std::vector<const float*> read(xs.begin(), xs.end()), values(ws.begin(), ws.end());
    const auto run = [&](bool overwrite) {
      for (const Memory& input : inputs) Set(*input, Random(input->num_floats(), "x"));
      Set(*output_gradient, Random(output_gradient->num_floats(), "dy"));
      EXPECT_TRUE(device_->SeedRandom(1, 0).ok());
      EXPECT_TRUE(
          op->Forward({.inputs = read, .variables = values, .output = output->data(), .training = true})
              .ok());
      const auto spoil = [&](kernels::DeviceMemory& memory) {
        Set(memory, std::vector<float>(static_cast<size_t>(memory.num_floats()),
                                       std::numeric_limits<float>::quiet_NaN()));
      };
      if (overwrite && !op->backward_reads().output) spoil(*output);
      for (const Memory& input : inputs) {
        if (overwrite && !op->backward_reads().inputs) spoil(*input);
      }
      EXPECT_TRUE(op->Backward({.inputs = read,
                                .variables = values,
                                .output = output->data(),
                                .output_gradient = output_gradient->data(),
                                .input_gradients = dxs,
                                .gradients = dws})
                      .ok());
      std::vector<std::vector<float>> all;
      for (const Memory& gradient : input_gradients) all.push_back(Get(*gradient));
      for (const Memory& gradient : gradients) all.push_back(Get(*gradient));
      return all;
    };
    EXPECT_EQ(run(false), run(true));
    EXPECT_TRUE(!op->backward_reads().inputs || !op->backward_reads().output) << "the case checks nothing";
    if (op->forwards_in_place()) CheckInPlace(*op, *inputs[0], *output);
  }

  void CheckInPlace(LayerOp& op, kernels::DeviceMemory& x, kernels::DeviceMemory& y) {
    Set(x, Random(x.num_floats(), "x"));
    const float* const input = x.data();
    ASSERT_TRUE(
        op.Forward({.inputs = {&input, 1}, .variables = {}, .output = x.data(), .training = true}).ok());
    EXPECT_EQ(Get(x), Get(y));
  }

  std::unique_ptr<kernels::Device> device_;
};

TEST_P(BackwardReadsTest, OnCpuNothingElseIsRead) {
  device_ = kernels::CreateCpuDevice(0, 1).value();
  Check();
}

TEST_P(BackwardReadsTest, OnCudaNothingElseIsRead) {
  device_ = kernels::cuda::CreateDevice({.precision = kernels::Precision::kFloat32}).value();
  Check();
}

INSTANTIATE_TEST_SUITE_P(
    , BackwardReadsTest,
    testing::Values(
        BackwardReadCase{"ReLU", R"("class_name": "ReLU", "config": {"name": "y"})", "5"},
        BackwardReadCase{"ReLU6", R"("class_name": "ReLU", "config": {"name": "y", "max_value": 6.0})", "5"},
        BackwardReadCase{"Gelu",
                         R"("class_name": "Activation", "config": {"name": "y", "activation": "gelu"})", "5"},
        BackwardReadCase{"Softmax", R"("class_name": "Softmax", "config": {"name": "y"})", "5"},
        BackwardReadCase{"Dense", R"("class_name": "Dense", "config": {"name": "y", "units": 3})", "5"},
        BackwardReadCase{"Conv2D",
                         R"("class_name": "Conv2D", "config": {"name": "y", "filters": 3, "kernel_size": 3})",
                         "6, 5, 2"},
        BackwardReadCase{"BatchNormalization",
                         R"("class_name": "BatchNormalization", "config": {"name": "y"})", "5, 4, 3"},
        BackwardReadCase{"LayerNormalization",
                         R"("class_name": "LayerNormalization", "config": {"name": "y"})", "6, 4"},
        BackwardReadCase{"GroupNormalization",
                         R"("class_name": "GroupNormalization", "config": {"name": "y", "groups": 2})",
                         "5, 4, 4"},
        BackwardReadCase{
            "LayerScale",
            R"("class_name": "LayerScale", "config": {"name": "y", "projection_dim": 4, "init_values": 0.5})",
            "6, 4"},
        BackwardReadCase{"Dropout", R"("class_name": "Dropout", "config": {"name": "y", "rate": 0.5})", "6"},
        BackwardReadCase{"MaxPooling2D", R"("class_name": "MaxPooling2D", "config": {"name": "y"})",
                         "6, 4, 3"},
        BackwardReadCase{"AveragePooling2D", R"("class_name": "AveragePooling2D", "config": {"name": "y"})",
                         "6, 4, 3"},
        BackwardReadCase{"GlobalMaxPooling2D",
                         R"("class_name": "GlobalMaxPooling2D", "config": {"name": "y"})", "6, 4, 3"},
        BackwardReadCase{"GlobalAveragePooling2D",
                         R"("class_name": "GlobalAveragePooling2D", "config": {"name": "y"})", "6, 4, 3"},
        BackwardReadCase{"ZeroPadding2D", R"("class_name": "ZeroPadding2D", "config": {"name": "y"})",
                         "6, 4, 3"},
        BackwardReadCase{"Cropping2D",
                         R"("class_name": "Cropping2D", "config": {"name": "y", "cropping": 1})", "6, 4, 3"},
        BackwardReadCase{"UpSampling2D", R"("class_name": "UpSampling2D", "config": {"name": "y"})",
                         "3, 4, 3"},
        BackwardReadCase{"Permute", R"("class_name": "Permute", "config": {"name": "y", "dims": [2, 1]})",
                         "3, 4"},
        BackwardReadCase{"RepeatVector", R"("class_name": "RepeatVector", "config": {"name": "y", "n": 3})",
                         "4"},
        BackwardReadCase{"Rescaling", R"("class_name": "Rescaling", "config": {"name": "y", "scale": 2.0})",
                         "4"},
        BackwardReadCase{
            "EinsumDense",
            R"("class_name": "EinsumDense", "config": {"name": "y", "equation": "abc,cd->abd", "output_shape": [5, 3]})",
            "5, 4"},
        BackwardReadCase{"GaussianNoise",
                         R"("class_name": "GaussianNoise", "config": {"name": "y", "stddev": 0.5})", "5"},
        BackwardReadCase{"BatchNormalizationOfRows",
                         R"("class_name": "BatchNormalization", "config": {"name": "y", "axis": 1})",
                         "5, 4, 3"},
        BackwardReadCase{"Add", R"("class_name": "Add", "config": {"name": "y"})", "4", 3},
        BackwardReadCase{"Multiply", R"("class_name": "Multiply", "config": {"name": "y"})", "4", 2},
        BackwardReadCase{"Concatenate", R"("class_name": "Concatenate", "config": {"name": "y"})", "4", 2}),
    [](const testing::TestParamInfo<BackwardReadCase>& info) { return info.param.name; });

}  // namespace
}  // namespace cairn::nn
