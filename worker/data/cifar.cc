// CIFAR's binary files (https://www.cs.toronto.edu/~kriz/cifar.html), mapped. A record is a label and an
// image of 32x32 pixels, a plane for each of red, green and blue.
//
// CIFAR-10: data_batch_1.bin ... and test_batch.bin; CIFAR-100: train.bin and test.bin, whose records begin
// with two labels: the coarse one is left out, as Keras does by default.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/data/byte_reader.h"
#include "worker/data/file_sets.h"
#include "worker/data/formats.h"

namespace cairn::data {
namespace {

constexpr int64_t kSide = 32, kPlane = kSide * kSide, kChannels = 3;

struct Variant {
  int64_t label_bytes;  // the last one counts
  int64_t num_classes;
  int64_t record_bytes() const { return label_bytes + kChannels * kPlane; }
};
constexpr Variant kCifar10 = {1, 10}, kCifar100 = {2, 100};

class CifarRows final : public RowSource {
 public:
  CifarRows(Variant variant, float input_scale)
      : variant_(variant), scale_(ScaleOf(input_scale, /*bytes=*/true)) {}

  // `file` must hold whole records.
  void Append(SharedBytes file) {
    size_ += static_cast<int64_t>(file.size()) / variant_.record_bytes();
    files_.push_back(std::move(file));
    ends_.push_back(size_);
  }

  // The bytes of record `index`.
  const uint8_t* Record(int64_t index) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const auto file = static_cast<size_t>(end - ends_.begin());
    const int64_t first = file == 0 ? 0 : ends_[file - 1];
    return files_[file].data() + (index - first) * variant_.record_bytes();
  }

  int64_t size() const override { return size_; }
  const Shape& row_shape() const override { return row_shape_; }
  void Read(int64_t index, absl::Span<float> to) const override {
    const uint8_t* planes = Record(index) + variant_.label_bytes;
    for (int64_t channel = 0; channel < kChannels; ++channel) {
      const uint8_t* plane = planes + channel * kPlane;
      for (int64_t i = 0; i < kPlane; ++i) {
        to.data()[i * kChannels + channel] = scale_(static_cast<float>(plane[i]));
      }
    }
  }

 private:
  const Variant variant_;
  const Scale scale_;
  const Shape row_shape_{kSide, kSide, kChannels};
  std::vector<SharedBytes> files_;
  std::vector<int64_t> ends_;  // [files]: examples up to and with this file
  int64_t size_ = 0;
};

absl::StatusOr<Split> LoadSplit(const std::vector<std::string>& files, Variant variant, float input_scale) {
  auto rows = std::make_unique<CifarRows>(variant, input_scale);
  Split split;
  split.inputs_name = files.front();
  split.targets_name = files.front();
  split.targets.num_classes = variant.num_classes;
  for (const std::string& path : files) {
    CAIRN_ASSIGN_OR_RETURN(SharedBytes file, ReadFileBytes(path));
    const auto size = static_cast<int64_t>(file.size());
    if (size == 0 || size % variant.record_bytes() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": has ", size, " bytes, no multiple of the ", variant.record_bytes(),
                       " that a record of ", variant.label_bytes,
                       variant.label_bytes == 1 ? " label" : " labels", " and a 32x32x3 image takes"));
    }
    const int64_t before = rows->size();
    rows->Append(std::move(file));
    for (int64_t i = before; i < rows->size(); ++i) {
      const int64_t label = rows->Record(i)[variant.label_bytes - 1];
      if (label >= variant.num_classes) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": record ", i - before, ": has the label ",
                                                       label, ", CIFAR-", variant.num_classes, " goes up to ",
                                                       variant.num_classes - 1));
      }
      split.targets.values.push_back(static_cast<float>(label));
    }
  }
  split.inputs = std::move(rows);
  return split;
}

}  // namespace

LoadedSplits LoadCifar(const DataOptions& options) {
  auto train = FindFiles(options.path, "data_batch", ".bin");
  auto validation = FindFiles(options.path, "test_batch", ".bin");
  const bool cifar10 = !train.empty();
  if (!cifar10) {
    train = FindFiles(options.path, "train", ".bin");
    validation = FindFiles(options.path, "test", ".bin");
  }
  if (train.empty()) return std::nullopt;
  const Variant variant = cifar10 ? kCifar10 : kCifar100;
  Splits splits;
  CAIRN_ASSIGN_OR_RETURN(splits.train, LoadSplit(train, variant, options.input_scale));
  if (!validation.empty()) {
    CAIRN_ASSIGN_OR_RETURN(splits.validation, LoadSplit(validation, variant, options.input_scale));
  }
  return splits;
}

}  // namespace cairn::data
