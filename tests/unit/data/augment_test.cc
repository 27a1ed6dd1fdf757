#include "data/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/batch_loader.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Image = std::vector<float>;

std::string RefusalOf(absl::string_view text) {
  return std::string(ParseAugmentation(text).status().message());
}

TEST(ParseAugmentation, ReadsItsPartsInAnyOrder) {
  const auto all = ParseAugmentation("shift:0.25,flip,crop:4");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_TRUE(all->flip);
  EXPECT_EQ(all->crop, 4);
  EXPECT_EQ(all->shift, 0.25f);
  EXPECT_TRUE(ParseAugmentation("")->empty());
  EXPECT_EQ(RefusalOf("flip,turn"), "'turn' is not one of flip, crop:PIXELS, shift:FRACTION");
  EXPECT_THAT(RefusalOf("crop:0"), HasSubstr("'crop:0': PIXELS must be an integer of at least 1"));
  EXPECT_THAT(RefusalOf("crop:1.5"), HasSubstr("'crop:1.5': PIXELS"));
  EXPECT_THAT(RefusalOf("shift:1"), HasSubstr("'shift:1': FRACTION must be a number between 0 and 1"));
  EXPECT_THAT(RefusalOf("shift:nan"), HasSubstr("'shift:nan': FRACTION"));
}

// The distinct images that `augmentation` makes of `image` over many epochs.
std::set<Image> Variants(const Augmentation& augmentation, const Shape& shape, const Image& image) {
  std::set<Image> variants;
  for (int64_t epoch = 0; epoch < 400; ++epoch) {
    Image varied = image;
    Augment(augmentation, shape, {.seed = 1, .epoch = epoch, .example = 0}, absl::MakeSpan(varied));
    variants.insert(varied);
  }
  return variants;
}

TEST(Augment, FlipMirrorsThePixelsAndNotTheirChannels) {
  EXPECT_THAT(Variants({.flip = true}, {2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}),
              ElementsAre(Image{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
                          Image{5, 6, 3, 4, 1, 2, 11, 12, 9, 10, 7, 8}));
}

// `image` [height, width] moved by (down, right) pixels, filled with zeros.
Image Moved(const Image& image, int64_t height, int64_t width, int64_t down, int64_t right) {
  Image moved;
  for (int64_t row = 0; row < height; ++row) {
    for (int64_t column = 0; column < width; ++column) {
      const int64_t y = row - down, x = column - right;
      const bool inside = y >= 0 && y < height && x >= 0 && x < width;
      moved.push_back(inside ? image[static_cast<size_t>(y * width + x)] : 0);
    }
  }
  return moved;
}

TEST(Augment, CropCutsAnywhereOutOfThePaddedImage) {
  const Image image = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::set<Image> all;
  for (int64_t down = -2; down <= 2; ++down) {
    for (int64_t right = -2; right <= 2; ++right) all.insert(Moved(image, 3, 4, down, right));
  }
  EXPECT_EQ(Variants({.crop = 2}, {3, 4, 1}, image), all);
}

TEST(Augment, ShiftMovesByUpToAFractionOfEachSide) {
  const Image image = {1, 2, 3, 4, 5, 6, 7, 8};
  std::set<Image> all;
  for (int64_t right = -1; right <= 1; ++right) all.insert(Moved(image, 2, 4, 0, right));
  EXPECT_EQ(Variants({.shift = 0.25f}, {2, 4, 1}, image), all);
}

TEST(Augment, DependsOnlyOnSeedEpochAndExample) {
  const Augmentation augmentation{.flip = true, .crop = 3};
  const auto varied = [&](uint64_t seed, int64_t epoch, int64_t example) {
    Image image(64);
    for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i);
    Augment(augmentation, {8, 8, 1}, {seed, epoch, example}, absl::MakeSpan(image));
    return image;
  };
  EXPECT_EQ(varied(1, 2, 3), varied(1, 2, 3));
  std::set<Image> of_seeds, of_epochs, of_examples;
  for (int i = 0; i < 8; ++i) {
    of_seeds.insert(varied(static_cast<uint64_t>(i), 2, 3));
    of_epochs.insert(varied(1, i, 3));
    of_examples.insert(varied(1, 2, i));
  }
  EXPECT_GT(of_seeds.size(), 4u);
  EXPECT_GT(of_epochs.size(), 4u);
  EXPECT_GT(of_examples.size(), 4u);
}

TEST(Augment, RefusesExamplesThatAreNotImages) {
  EXPECT_TRUE(Validate(Augmentation{}, {784}).ok());
  EXPECT_TRUE(Validate({.flip = true, .crop = 4}, {32, 32, 3}).ok());
  EXPECT_THAT(std::string(Validate({.flip = true}, {784}).message()),
              HasSubstr("examples of the shape [784] are not images"));
  EXPECT_THAT(std::string(Validate({.crop = 5}, {8, 5, 1}).message()),
              HasSubstr("images of the shape [8,5,1] are too small to crop by 5 pixels"));
}

// Example i is an image of 4x4 pixels of value i + 1.
class FlatImages final : public Dataset {
 public:
  int64_t size() const override { return 12; }
  const Shape& example_shape() const override { return shape_; }
  TargetInfo target_info() const override { return {.num_classes = 12, .shape = {1}}; }
  Augmentation augmentation() const override { return {.crop = 3}; }
  void Read(int64_t index, absl::Span<const MutableTensorView> inputs,
            absl::Span<float> target) const override {
    const absl::Span<float> image = inputs[0].floats();
    std::fill(image.begin(), image.end(), static_cast<float>(index + 1));
    target[0] = static_cast<float>(index);
  }

 private:
  const Shape shape_{4, 4, 1};
};

// [example] the image that the loaders of `num_workers` workers return in epoch `epoch`.
std::vector<Image> ImagesOf(int64_t num_workers, int64_t batch_size, int64_t epoch) {
  const FlatImages dataset;
  std::vector<Image> images(12);
  for (int64_t worker = 0; worker < num_workers; ++worker) {
    BatchLoader loader(dataset, {.num_examples = 12,
                                 .num_workers = num_workers,
                                 .worker = worker,
                                 .batch_size = batch_size,
                                 .seed = 7});
    for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
      const Batch& batch = loader.Next(epoch * loader.batches_per_epoch() + i);
      for (int64_t row = 0; row < batch.examples; ++row) {
        const float* image = batch.inputs.buffers()[0].data() + row * 16;
        images[static_cast<size_t>(batch.targets.data()[row])] = Image(image, image + 16);
      }
    }
  }
  return images;
}

TEST(BatchLoader, AugmentationDoesNotDependOnWorkersOrBatchSize) {
  const std::vector<Image> images = ImagesOf(1, 12, 3);
  EXPECT_EQ(ImagesOf(3, 2, 3), images);
  EXPECT_EQ(ImagesOf(2, 5, 3), images);
  EXPECT_NE(ImagesOf(1, 12, 4), images);
  EXPECT_GT(std::count(images[0].begin(), images[0].end(), 1.0f), 0);
}

}  // namespace
}  // namespace cairn::data
