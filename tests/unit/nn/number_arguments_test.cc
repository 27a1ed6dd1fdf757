// Functions of keras.ops with numbers, as Keras 3 writes `x + 3.0`.
#include "nn/functions/number_arguments.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/device.h"
#include "nn/replica/replica.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;

// A model that calls a function on its input x and a number.
std::string ModelOf(const std::string& function, const std::string& args) {
  return absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 3]}, "inbound_nodes": []},
    {"class_name": ")",
                      function, R"(", "module": "keras.src.ops.numpy", "config": {"name": "f"}, "name": "f",
     "inbound_nodes": [{"args": )",
                      args, R"(, "kwargs": {}}]}],
    "input_layers": [["x", 0, 0]], "output_layers": [["f", 0, 0]]}})");
}

std::vector<float> OutputsOf(const Model& model, const std::vector<float>& x) {
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica =
      Replica::Create(model, LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device).value();
  const std::vector<float> targets(3);
  BatchView batch = {.examples = 1, .targets = targets};
  batch.inputs.push_back({DType::kFloat32, {1, 3}, x.data()});
  const auto result = replica->Evaluate({}, batch);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? std::vector<float>(result->outputs.begin(), result->outputs.end())
                     : std::vector<float>();
}

TEST(NumberArguments, AreComputed) {
  struct Case {
    const char *function, *args;
    std::vector<float> expected;  // for x = 1, -2, 4
  };
  for (const Case& c : {Case{"Add", R"([["x", 0, 0], 3.0])", {4, 1, 7}},
                        {"Add", R"([3, ["x", 0, 0]])", {4, 1, 7}},
                        {"Multiply", R"([["x", 0, 0], 0.5])", {0.5f, -1, 2}},
                        {"Subtract", R"([["x", 0, 0], 1.0])", {0, -3, 3}},
                        {"Subtract", R"([1.0, ["x", 0, 0]])", {0, 3, -3}},
                        {"Divide", R"([["x", 0, 0], 4])", {0.25f, -0.5f, 1}},
                        {"TrueDivide", R"([["x", 0, 0], -2.0])", {-0.5f, 1, -2}}}) {
    SCOPED_TRACE(absl::StrCat(c.function, c.args));
    const auto model = Model::FromJson(ModelOf(c.function, c.args), "m");
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_THAT(OutputsOf(*model, {1, -2, 4}), Pointwise(FloatNear(1e-6f), c.expected));
  }
}

TEST(NumberArguments, OtherArithmeticIsRefused) {
  const auto fault = [](const char* function, const char* args) {
    return std::string(Model::FromJson(ModelOf(function, args), "m").status().message());
  };
  EXPECT_THAT(fault("Divide", R"([["x", 0, 0], 0])"),
              HasSubstr("layer 'f' (Divide), line 3: number: divides by 0"));
  EXPECT_THAT(fault("Power", R"([["x", 0, 0], 1.5])"), HasSubstr("number: only 2, 3, 4, 0.5, -0.5 and -1"));
  EXPECT_THAT(fault("Power", R"([-2, ["x", 0, 0]])"), HasSubstr("number: expected a positive number"));
  constexpr char kArray[] = R"({"class_name": "__numpy__", "config": {"value": VALUE, "dtype": "float32"}})";
  const auto array_fault = [&](const char* function, const char* value) {
    const std::string array = absl::StrReplaceAll(kArray, {{"VALUE", value}});
    return fault(function, absl::StrCat(R"([["x", 0, 0], )", array, "]").c_str());
  };
  EXPECT_THAT(array_fault("Add", "[1, [2]]"), HasSubstr("constant: expected nested lists of numbers"));
  EXPECT_THAT(array_fault("Add", "[[1, 2], [3]]"), HasSubstr("constant: expected nested lists of numbers"));
  EXPECT_THAT(array_fault("Add", "[]"), HasSubstr("constant: expected nested lists of numbers"));
  EXPECT_THAT(array_fault("Add", R"(["1"])"), HasSubstr("constant: expected nested lists of numbers"));
  EXPECT_THAT(array_fault("Add", "[1, 2, 3, 4, 5, 6, 7]"),
              HasSubstr("constant: an array [7] is not supported for input"));
  EXPECT_THAT(array_fault("Add", "[[[1]], [[2]]]"), HasSubstr("constant: an array [2,1,1] is not supported"));
  EXPECT_THAT(array_fault("Maximum", "[[[1]], [[2]]]"),
              HasSubstr("constants: an array [2,1,1] is not supported for input [3] without its batch"));
  EXPECT_THAT(array_fault("Maximum", "[1, 2]"), HasSubstr("do not broadcast to one shape"));
  EXPECT_THAT(array_fault("Equal", R"(["1"])"), HasSubstr("constants: expected numbers, or nested lists"));
  EXPECT_THAT(fault("Equal", R"([["x", 0, 0], 3.0], "kwargs": {}}, {"args": [["x", 0, 0], 4.0])"),
              HasSubstr("layer 'f': its calls have different numbers"));
  EXPECT_THAT(fault("Equal", R"([["x", 0, 0], 3.0], "kwargs": {}}, {"args": [["x", 0, 0], ["x", 0, 0]])"),
              HasSubstr("layer 'f': has a number in some of its calls only"));
  EXPECT_THAT(fault("Equal", "[1, 2]"), HasSubstr("in place of a tensor is not supported"));
  EXPECT_THAT(fault("Where", R"([["x", 0, 0]])"), HasSubstr("1 inputs, expected three"));
  EXPECT_THAT(fault("Where", R"([["x", 0, 0], 1])"), HasSubstr("1 inputs, expected two"));
  EXPECT_THAT(array_fault("Power", "[1]"), HasSubstr("number: only 2, 3, 4, 0.5, -0.5 and -1"));
  EXPECT_THAT(fault("Matmul", R"([["x", 0, 0], 3.0])"),
              HasSubstr("the number 3.0 in place of a tensor is not supported"));
  EXPECT_THAT(fault("Add", R"([["x", 0, 0], 3.0], "kwargs": {}}, {"args": [["x", 0, 0], 4.0])"),
              HasSubstr("layer 'f': its calls have different numbers"));
  EXPECT_THAT(fault("Add", R"([1.0, 2.0])"), HasSubstr("in place of a tensor is not supported"));
}

// In Keras, only layers pass masks of time steps.
TEST(NumberArguments, FunctionsPassNoMask) {
  const auto model_with = [](const char* scaled) {
    return Model::FromJson(absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 3, 2]}, "inbound_nodes": []},
    {"class_name": "Masking", "config": {"name": "k"}, "inbound_nodes": [["x"]]}, )",
                                        scaled, R"(,
    {"class_name": "LSTM", "config": {"name": "l", "units": 2}, "inbound_nodes": [["f"]]}],
    "input_layers": [["x", 0, 0]], "output_layers": [["l", 0, 0]]}})"),
                           "m");
  };
  const auto function = model_with(
      R"({"class_name": "Multiply", "module": "keras.src.ops.numpy", "config": {"name": "f"},
          "inbound_nodes": [{"args": [["k", 0, 0], 2.0], "kwargs": {}}]})");
  ASSERT_TRUE(function.ok()) << function.status();
  EXPECT_THAT(function->nodes().back().masked, IsEmpty());
  const auto layer = model_with(
      R"({"class_name": "Rescaling", "config": {"name": "f", "scale": 2.0}, "inbound_nodes": [["k"]]})");
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->nodes().back().masked.size(), 1u);
}

}  // namespace
}  // namespace cairn::nn
