#include "data/array/synthetic_mnist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "data/array/idx.h"
#include "data/dataset.h"
#include "tests/unit/data/data_files.h"

namespace cairn::data {
namespace {

TEST(WriteSyntheticMnist, WritesADataSetThatLoads) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteSyntheticMnist(dir / "a/b", 300, 50, 1).ok());
  const auto data = LoadTrainingData({.path = dir / "a/b"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train->size(), 300);
  EXPECT_EQ(data->validation->size(), 50);
  EXPECT_EQ(data->train->example_shape(), Shape({28, 28}));
  EXPECT_EQ(data->train->num_classes(), 10);
}

TEST(WriteSyntheticMnist, TheSameSeedWritesTheSameBytes) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteSyntheticMnist(dir / "a", 40, 10, 7).ok());
  ASSERT_TRUE(WriteSyntheticMnist(dir / "b", 40, 10, 7).ok());
  ASSERT_TRUE(WriteSyntheticMnist(dir / "c", 40, 10, 8).ok());
  for (const char* file : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"}) {
    EXPECT_EQ(ReadText(dir / "a/" + file), ReadText(dir / "b/" + file));
    EXPECT_NE(ReadText(dir / "a/" + file), ReadText(dir / "c/" + file));
  }
}

// The hash computed by GCC and clang, with and without optimization. It shows changes in the drawing, and
// arithmetic that depends on the machine.
TEST(WriteSyntheticMnist, TheBytesAreTheSameOnEveryMachine) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteSyntheticMnist(dir.path(), 100, 0, 42).ok());
  const std::string images = ReadText(dir / "train-images-idx3-ubyte");
  EXPECT_EQ(StreamOf(images), 2747268607163387674u);
  EXPECT_FALSE(std::filesystem::exists(dir / "t10k-images-idx3-ubyte"));
}

TEST(WriteSyntheticMnist, AnExampleDoesNotDependOnTheNumberOfExamples) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(WriteSyntheticMnist(dir / "few", 5, 0, 3).ok());
  ASSERT_TRUE(WriteSyntheticMnist(dir / "many", 50, 0, 3).ok());
  const auto few = ReadIdx(dir / "few/train-images-idx3-ubyte");
  const auto many = ReadIdx(dir / "many/train-images-idx3-ubyte");
  EXPECT_TRUE(std::equal(few->bytes.begin(), few->bytes.end(), many->bytes.begin()));
}

TEST(WriteSyntheticMnist, ImpossibleRequestsAreRefused) {
  const TemporaryDirectory dir;
  EXPECT_EQ(WriteSyntheticMnist(dir.path(), 0, 10, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteSyntheticMnist(dir.path(), 10, -1, 1).code(), absl::StatusCode::kInvalidArgument);
  WriteText(dir / "file", "");
  EXPECT_FALSE(WriteSyntheticMnist(dir / "file/below", 10, 10, 1).ok());
}

TEST(DrawDigit, EveryDigitHasInkInTheMiddleAndNotAtTheRim) {
  for (int digit = 0; digit <= 9; ++digit) {
    Random random(1, "digit");
    int64_t total = 0, rim = 0;
    for (int i = 0; i < 100; ++i) {
      const DigitImage image = DrawDigit(digit, random);
      for (size_t pixel = 0; pixel < image.size(); ++pixel) {
        const size_t row = pixel / kMnistSide, column = pixel % kMnistSide;
        total += image[pixel];
        if (row == 0 || column == 0 || row == 27 || column == 27) rim += image[pixel];
      }
    }
    EXPECT_GT(total / 100, 5'000) << digit;  // a thin 1
    // an eighth of full white would be 25 000: MNIST has about 26 000
    EXPECT_LT(total / 100, 60'000) << digit;
    EXPECT_LT(rim, total / 50) << digit;
  }
}

// A classifier that only compares with the mean image of each digit. Its accuracy is far above chance, since
// the digits differ, and well below 1, since writing varies. On MNIST it is 0.82.
TEST(DrawDigit, DigitsDifferAndWritingVaries) {
  std::array<std::array<double, 784>, 10> means{};
  Random random(5, "means");
  for (int i = 0; i < 2000; ++i) {
    const DigitImage image = DrawDigit(i % 10, random);
    for (size_t p = 0; p < image.size(); ++p) means[static_cast<size_t>(i % 10)][p] += image[p] / 200.0;
  }
  int right = 0;
  for (int i = 0; i < 1000; ++i) {
    const DigitImage image = DrawDigit(i % 10, random);
    size_t best = 0;
    double best_distance = 1e300;
    for (size_t d = 0; d < 10; ++d) {
      double distance = 0;
      for (size_t p = 0; p < image.size(); ++p)
        distance += (image[p] - means[d][p]) * (image[p] - means[d][p]);
      if (distance < best_distance) best = d, best_distance = distance;
    }
    right += best == static_cast<size_t>(i % 10);
  }
  EXPECT_GT(right, 700);
  EXPECT_LT(right, 970);
}

}  // namespace
}  // namespace cairn::data
