#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/dataset.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/npz_files.h"
#include "tests/unit/data/refusals.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::string Array(const char* type, int64_t columns, const std::vector<T>& values) {
  const auto rows = static_cast<int64_t>(values.size()) / columns;
  return Npy(type, absl::StrCat("(", rows, ", ", columns, ")"),
             {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

// A day of 2 dense and 3 sparse columns, whose numbers begin at `first`.
void WriteDay(const TemporaryDirectory& dir, int day, int32_t first, size_t examples) {
  std::vector<float> dense;
  std::vector<int32_t> sparse, labels;
  for (size_t i = 0; i < examples; ++i) {
    const int32_t x = first + static_cast<int32_t>(i);
    dense.insert(dense.end(), {static_cast<float>(x), static_cast<float>(x) / 2});
    sparse.insert(sparse.end(), {x, 10 * x, 100 * x});
    labels.push_back(x % 2);
  }
  const std::string path = dir / absl::StrCat("day_", day);
  WriteText(path + "_dense.npy", Array("<f4", 2, dense));
  WriteText(path + "_sparse.npy", Array("<i4", 3, sparse));
  WriteText(path + "_labels.npy", Array("<i4", 1, labels));
}

DataOptions OptionsFor(const TemporaryDirectory& dir) {
  return {.path = dir.path(),
          .input_names = {"dense", "ids", "C2"},
          .input_shapes = {{2}, {3}, {1}},
          .input_types = {DType::kFloat32, DType::kInt64, DType::kInt32},
          .table_rows = {0, 1000, 1000}};
}

TEST(LoadTorchrecNpy, DaysAreOneSetAndTheLastIsTheValidationSet) {
  const TemporaryDirectory dir;
  WriteDay(dir, 2, 1, 2);
  WriteDay(dir, 10, 3, 1);  // numbers, not names, are in order
  WriteDay(dir, 11, 8, 3);
  const auto data = LoadTrainingData(OptionsFor(dir));
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->train->size(), 3);
  EXPECT_EQ(data->validation->size(), 3);
  EXPECT_EQ(data->train->num_classes(), 2);
  InputRows rows(data->train->input_specs(), 3);
  std::vector<float> targets(3);
  for (int64_t i = 0; i < 3; ++i) data->train->Read(i, rows.Row(i), {&targets[static_cast<size_t>(i)], 1});
  const TensorViews inputs = rows.First(3);
  EXPECT_THAT(inputs[0].floats(), ElementsAre(1, 0.5f, 2, 1, 3, 1.5f));
  EXPECT_EQ(inputs[1].Integer(8), 300);
  EXPECT_EQ(inputs[2].Integer(1), 20);
  EXPECT_THAT(targets, ElementsAre(1, 0, 1));
  EXPECT_THAT(data->train->TargetName(2), HasSubstr("day_10_labels.npy: example 0"));
}

TEST(LoadTorchrecNpy, AGapOfDaysIsARemarkAndTwoFilesOfADayAreRefused) {
  const TemporaryDirectory dir;
  WriteDay(dir, 0, 1, 2);
  WriteDay(dir, 1, 3, 1);
  WriteDay(dir, 3, 8, 3);
  const auto data = LoadTrainingData(OptionsFor(dir));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->remarks, ElementsAre(HasSubstr("day_")));
  WriteText(dir / "day_01_dense.npy", Array<float>("<f4", 2, {1, 2}));
  EXPECT_THAT(LoadRefusal(OptionsFor(dir)),
              HasSubstr("day_01 and day_1 have the same number: remove one of them"));
}

TEST(LoadTorchrecNpy, FaultsNameTheirFile) {
  const TemporaryDirectory dir;
  WriteDay(dir, 0, 1, 2);
  DataOptions options = OptionsFor(dir);
  options.input_shapes[1] = {4};
  EXPECT_THAT(
      LoadRefusal(options),
      HasSubstr(
          "day_0_dense.npy: input 'ids' of the model takes 4 values, but the sparse arrays have 3 columns"));
  options.input_shapes[1] = {3};
  options.input_names[2] = "C4";
  EXPECT_THAT(LoadRefusal(options),
              HasSubstr("input 'C4' of the model takes 1 values, but the sparse arrays have 3"));
  options = OptionsFor(dir);
  WriteText(dir / "day_0_labels.npy", Array<int32_t>("<i4", 1, {1, 0, 1}));
  EXPECT_THAT(LoadRefusal(options), HasSubstr("day_0_dense.npy has 2 examples, but "));
  std::filesystem::remove(dir / "day_0_labels.npy");
  EXPECT_THAT(LoadRefusal(options), HasSubstr("day_0_labels.npy"));
  WriteDay(dir, 0, 1, 2);
  WriteText(dir / "day_0_sparse.npy", Array<float>("<f4", 3, {1, 2, 3, 4, 5, 6}));
  EXPECT_THAT(LoadRefusal(options),
              HasSubstr("day_0_sparse.npy: is float32 [2,3], not integers [examples, columns]"));
  options.hash_ids = true;
  WriteDay(dir, 0, 1, 2);
  EXPECT_THAT(LoadRefusal(options), HasSubstr("hashing of ids applies to"));
}

}  // namespace
}  // namespace cairn::data
