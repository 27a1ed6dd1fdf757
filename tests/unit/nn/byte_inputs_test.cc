#include "nn/byte_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

constexpr char kInput[] = R"({"class_name": "InputLayer", "config": {"batch_shape": [null, 4, 4, 3]}},)";
constexpr char kDense[] = R"(,{"class_name": "Flatten"}, {"class_name": "Dense", "config": {"units": 2}})";

// The first input of a model whose first layers are `layers`.
ByteInput FirstInput(absl::string_view layers) {
  const auto model = Model::FromJson(SequentialOf(absl::StrCat(kInput, layers, kDense)), "m");
  EXPECT_TRUE(model.ok()) << model.status();
  return ByteInputsOf(*model).at(0);
}

TEST(ByteInputsOf, LayersWithWeightsTakeBytesScaled) {
  const ByteInput conv =
      FirstInput(R"({"class_name": "Conv2D", "config": {"name": "c", "filters": 2, "kernel_size": 3}})");
  EXPECT_FALSE(conv.raw);
  EXPECT_EQ(conv.layer, "c");
  EXPECT_EQ(conv.class_name, "Conv2D");
  EXPECT_FALSE(FirstInput(R"({"class_name": "BatchNormalization", "config": {"name": "b"}})").raw);
}

TEST(ByteInputsOf, LayersThatScaleTakeBytesUnchanged) {
  const ByteInput rescaling =
      FirstInput(R"({"class_name": "Rescaling", "config": {"name": "r", "scale": 0.5}})");
  EXPECT_TRUE(rescaling.raw);
  EXPECT_EQ(rescaling.layer, "r");
  EXPECT_TRUE(FirstInput(R"({"class_name": "Normalization",
                             "config": {"mean": [1, 2, 3], "variance": [1, 1, 1]}})")
                  .raw);
  EXPECT_TRUE(FirstInput(R"({"class_name": "MathFunction", "config": {"function": "floor"}})").raw);
}

TEST(ByteInputsOf, LayersWithoutAScaleLetTheNextLayersDecide) {
  const ByteInput behind = FirstInput(R"({"class_name": "ZeroPadding2D"}, {"class_name": "MaxPooling2D"},
                                         {"class_name": "Dropout", "config": {"rate": 0.5}},
                                         {"class_name": "Reshape", "config": {"target_shape": [3, 9]}},
                                         {"class_name": "Rescaling", "config": {"name": "r", "scale": 0.5}})");
  EXPECT_TRUE(behind.raw);
  EXPECT_EQ(behind.layer, "r");
  const auto none = Model::FromJson(SequentialOf(absl::StrCat(kInput, R"({"class_name": "Flatten"})")), "m");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(ByteInputsOf(*none).at(0).layer, "");
}

TEST(ByteInputsOf, OneReaderOfRawBytesDecidesForItsInput) {
  const auto input = [](const char* name, const char* shape) {
    return absl::StrCat(R"({"class_name": "InputLayer", "name": ")", name, R"(", "inbound_nodes": [],
                         "config": {"name": ")",
                        name, R"(", "batch_shape": [null, )", shape, "]}},");
  };
  const auto layer = [](const char* class_name, const char* name, const char* config, const char* inbound) {
    return absl::StrCat(R"({"class_name": ")", class_name, R"(", "name": ")", name,
                        R"(", "config": {"name": ")", name, "\"", config, R"(}, "inbound_nodes": [[)",
                        inbound, "]]},");
  };
  std::string layers =
      input("words", "5") + input("image", "6") + input("both", "4") +
      layer("Embedding", "e", R"(, "input_dim": 9, "output_dim": 2)", R"(["words", 0, 0, {}])") +
      layer("Flatten", "f", "", R"(["e", 0, 0, {}])") +
      layer("Dense", "d", R"(, "units": 2)", R"(["image", 0, 0, {}])") +
      layer("Dense", "d2", R"(, "units": 2)", R"(["both", 0, 0, {}])") +
      layer("Rescaling", "r", R"(, "scale": 0.5)", R"(["both", 0, 0, {}])") +
      layer("Concatenate", "cat", "",
            R"(["f", 0, 0, {}], ["d", 0, 0, {}], ["d2", 0, 0, {}], ["r", 0, 0, {}])");
  layers.pop_back();
  const auto model = Model::FromJson(
      absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [)", layers,
                   R"(], "input_layers": [["words", 0, 0], ["image", 0, 0], ["both", 0, 0]],
                      "output_layers": [["cat", 0, 0]]}})"),
      "m");
  ASSERT_TRUE(model.ok()) << model.status();
  const std::vector<ByteInput> inputs = ByteInputsOf(*model);
  ASSERT_EQ(inputs.size(), 3u);
  EXPECT_TRUE(inputs[0].raw);
  EXPECT_EQ(inputs[0].table_rows, 9);
  EXPECT_FALSE(inputs[1].raw);
  EXPECT_EQ(inputs[1].table_rows, 0);
  EXPECT_TRUE(inputs[2].raw);
  EXPECT_EQ(inputs[2].layer, "r");
}

TEST(ByteInputsOf, TheSmallestTableThatLooksUpAnInputCounts) {
  const auto embedding = [](const char* name, int rows) {
    return absl::StrCat(R"({"class_name": "Embedding", "name": ")", name, R"(", "config": {"name": ")", name,
                        R"(", "input_dim": )", rows,
                        R"(, "output_dim": 2}, "inbound_nodes": [[["ids", 0, 0, {}]]]},)");
  };
  for (const auto& [first, second] : {std::pair(7, 5), std::pair(5, 7)}) {
    const auto model =
        Model::FromJson(absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
          {"class_name": "InputLayer", "name": "ids", "inbound_nodes": [],
           "config": {"name": "ids", "batch_shape": [null, 3], "dtype": "int64"}},)",
                                     embedding("a", first), embedding("b", second), R"(
          {"class_name": "Add", "name": "sum", "config": {"name": "sum"},
           "inbound_nodes": [[["a", 0, 0, {}], ["b", 0, 0, {}]]]}],
          "input_layers": [["ids", 0, 0]], "output_layers": [["sum", 0, 0]]}})"),
                        "m");
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(ByteInputsOf(*model).at(0).table_rows, 5);
    EXPECT_EQ(ByteInputsOf(*model).at(0).layer, first == 5 ? "a" : "b");
  }
}

}  // namespace
}  // namespace cairn::nn
