#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/model.h"
#include "tests/unit/nn/models.h"

namespace cairn::nn {
namespace {

// The widths are those of Keras 3's summaries on a terminal of 80 columns.
TEST(SummaryTable, TheTableLooksLikeKeras3) {
  EXPECT_EQ(SummaryTable(Model::FromFile(kKerasJson).value()),
            R"(Model: "sequential"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ conv2d (Conv2D)                 │ (None, 26, 26, 32)     │           320 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ max_pooling2d (MaxPooling2D)    │ (None, 13, 13, 32)     │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ conv2d_1 (Conv2D)               │ (None, 11, 11, 64)     │        18,496 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ max_pooling2d_1 (MaxPooling2D)  │ (None, 5, 5, 64)       │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ conv2d_2 (Conv2D)               │ (None, 3, 3, 64)       │        36,928 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ flatten (Flatten)               │ (None, 576)            │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense (Dense)                   │ (None, 64)             │        36,928 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense_1 (Dense)                 │ (None, 10)             │           650 │
└─────────────────────────────────┴────────────────────────┴───────────────┘
 Total params: 93,322 (364.54 KB)
 Trainable params: 93,322 (364.54 KB)
 Non-trainable params: 0 (0.00 B)
)");
}

TEST(SummaryTable, LongNamesWrapAtTheBlankAndThenEndInAnEllipsis) {
  const std::string table = SummaryTable(Model::FromJson(SequentialOf(R"({"class_name": "Dense", "config": {
                        "name": "a_name_that_is_far_too_long_for_the_column", "units": 1, "input_shape": [2]}})"),
                                                         "m")
                                             .value());
  EXPECT_THAT(table, testing::HasSubstr(
                         "│ a_name_that_is_far_too_long_fo… │ (None, 1)              │             3 │\n"
                         "│ (Dense)                         │                        │               │\n"));
}

TEST(SummaryTable, AGraphShowsInputsConnectionsAndNonTrainableVariables) {
  const auto model = Model::FromJson(R"({"class_name": "Functional", "config": {"name": "skip", "layers": [
      {"class_name": "InputLayer", "config": {"name": "image", "batch_shape": [null, 4, 4, 2]}},
      {"class_name": "Conv2D", "config": {"name": "conv", "filters": 2, "kernel_size": 3, "padding": "same"},
       "inbound_nodes": [["image"]]},
      {"class_name": "BatchNormalization", "config": {"name": "bn"}, "inbound_nodes": [["conv"]]},
      {"class_name": "Add", "config": {"name": "add"}, "inbound_nodes": [["image", "bn"]]}],
      "input_layers": ["image"], "output_layers": ["add"]}})",
                                     "m");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(SummaryTable(*model), R"(Model: "skip"
┏━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┓
┃ Layer (type)        ┃ Output Shape      ┃    Param # ┃ Connected to      ┃
┡━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━┩
│ image (InputLayer)  │ (None, 4, 4, 2)   │          0 │ -                 │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ conv (Conv2D)       │ (None, 4, 4, 2)   │         38 │ image[0][0]       │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ bn                  │ (None, 4, 4, 2)   │          8 │ conv[0][0]        │
│ (BatchNormalizatio… │                   │            │                   │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ add (Add)           │ (None, 4, 4, 2)   │          0 │ image[0][0],      │
│                     │                   │            │ bn[0][0]          │
└─────────────────────┴───────────────────┴────────────┴───────────────────┘
 Total params: 46 (184.00 B)
 Trainable params: 42 (168.00 B)
 Non-trainable params: 4 (16.00 B)
)");
}

TEST(SummaryTable, MillionsAreGroupedAndMegabytesCounted) {
  const std::string table = SummaryTable(
      Model::FromJson(
          SequentialOf(R"({"class_name": "Dense", "config": {"units": 4096, "input_shape": [784]}})"), "m")
          .value());
  EXPECT_THAT(table, testing::HasSubstr(" Total params: 3,215,360 (12.27 MB)\n"));
}

}  // namespace
}  // namespace cairn::nn
