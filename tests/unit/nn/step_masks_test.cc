// Masks in the calls of Keras 3, and the bounds of what a file may ask for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "nn/model.h"

namespace cairn::nn {
namespace {

using ::testing::HasSubstr;

// `layers` after the ids "x" [4].
absl::StatusOr<Model> ModelOf(const std::string& layers, const std::string& output) {
  return Model::FromJson(absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 4], "dtype": "int32"},
     "inbound_nodes": []}, )",
                                      layers, R"(], "input_layers": [["x", 0, 0]], "output_layers": [[")",
                                      output, R"(", 0, 0]]}})"),
                         "m");
}

// An LSTM whose mask compares `tensor` with `number`.
absl::StatusOr<Model> Masked(const std::string& tensor, const std::string& number) {
  return ModelOf(
      absl::StrCat(R"({"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 2,
       "mask_zero": true}, "inbound_nodes": [["x"]]},
    {"class_name": "NotEqual", "module": "keras.src.ops.numpy", "name": "ne", "config": {"name": "ne"},
     "inbound_nodes": [{"args": [[")",
                   tensor, R"(", 0, 0], )", number, R"(], "kwargs": {}}]},
    {"class_name": "LSTM", "config": {"name": "l", "units": 2},
     "inbound_nodes": [{"args": [["e", 0, 0]], "kwargs": {"mask": ["ne", 0, 0]}}]})"),
      "l");
}

TEST(MaskFunctions, AreThoseOfTheLayerBefore) {
  const auto model = Masked("x", "0");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->nodes().back().masked.size(), 1u);
}

TEST(MaskFunctions, OtherMasksAreRefused) {
  for (const auto& [tensor, number] : {std::pair{"x", "5"}, {"e", "0"}, {"x", "[1]"}}) {
    EXPECT_THAT(std::string(Masked(tensor, number).status().message()),
                HasSubstr("mask: 'ne' is not a mask of Embedding(mask_zero=True) or Masking"))
        << tensor << " " << number;
  }
}

TEST(MaskFunctions, MayHaveAConfigOfAnyKind) {
  for (const char* config : {"5", R"({"layers": 5})", "[5]"}) {
    const auto model =
        ModelOf(absl::StrCat(R"({"class_name": "Embedding", "config": {"name": "e", "input_dim": 9,
         "output_dim": 2}, "inbound_nodes": [["x"]]},
       {"class_name": "NotEqual", "module": "keras.src.ops.numpy", "name": "ne", "config": )",
                             config, "}"),
                "e");
    EXPECT_TRUE(model.ok()) << config << ": " << model.status();
  }
}

TEST(StepMasks, UnionsOfUnionsAreBounded) {
  std::string layers =
      R"({"class_name": "Embedding", "config": {"name": "a0", "input_dim": 9, "output_dim": 2,
      "mask_zero": true}, "inbound_nodes": [["x"]]},
    {"class_name": "Masking", "config": {"name": "a1"}, "inbound_nodes": [["a0"]]})";
  for (int i = 2; i < 2000; ++i) {
    absl::StrAppend(&layers, R"(, {"class_name": "Add", "config": {"name": "a)", i,
                    R"("}, "inbound_nodes": [["a)", i - 1, R"(", "a)", i - 2, R"("]]})");
  }
  EXPECT_THAT(std::string(ModelOf(layers, "a1999").status().message()),
              HasSubstr("its mask unites those of more than 1024 layers in a row"));
}

TEST(TrainingMode, LayersWithDropoutWithinHaveIt) {
  for (const char* layer :
       {R"("LSTM", "config": {"units": 2, "dropout": 0.5, )",
        R"("TimeDistributed", "config": {"layer": {"class_name": "Dropout", "config": {"rate": 0.5}}, )",
        R"("MultiHeadAttention", "config": {"num_heads": 1, "key_dim": 2, "dropout": 0.5, )"}) {
    const auto model = ModelOf(
        absl::StrCat(
            R"({"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 2},
         "inbound_nodes": [["x"]]}, {"class_name": )",
            layer,
            R"("name": "l"}, "inbound_nodes": [[["e", 0, 0, {"training": false}], ["e", 0, 0, {}]]]})"),
        "l");
    EXPECT_THAT(std::string(model.status().message()), HasSubstr("training: false is not supported"))
        << layer;
  }
}

}  // namespace
}  // namespace cairn::nn
