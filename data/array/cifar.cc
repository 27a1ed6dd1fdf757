// CIFAR's binary files (https://www.cs.toronto.edu/~kriz/cifar.html), mapped. A record is a label and an
// image of 32x32 pixels, with one plane each for red, green and blue.
//
// CIFAR-10: data_batch_1.bin ... and test_batch.bin. CIFAR-100: train.bin and test.bin, whose records begin
// with two labels; the first, coarse one is ignored, as Keras does by default.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/array/read_ahead.h"
#include "data/file/byte_reader.h"
#include "data/file_sets.h"
#include "data/first_error.h"
#include "data/formats.h"
#include "data/row_writer.h"

namespace cairn::data {
namespace {

constexpr int64_t kSide = 32, kPlane = kSide * kSide, kChannels = 3;

struct Variant {
  int64_t label_bytes;  // the last label is used
  int64_t num_classes;
  int64_t record_bytes() const { return label_bytes + kChannels * kPlane; }
};
constexpr size_t kCifar10Batches = 5;
constexpr Variant kCifar10 = {1, 10}, kCifar100 = {2, 100};

class CifarRows final : public RowSource {
 public:
  // `files` must contain whole records.
  CifarRows(Variant variant, float input_scale, std::vector<SharedBytes> files)
      : variant_(variant),
        scale_(ScaleOf(input_scale, /*bytes=*/true)),
        files_(std::move(files)),
        read_ahead_(files_) {
    for (const SharedBytes& file : files_) {
      ends_.push_back(size() + static_cast<int64_t>(file.size()) / variant_.record_bytes());
    }
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  const Shape& row_shape() const override { return row_shape_; }
  void Prefetch(int64_t index) const override { read_ahead_.Fetch(Record(index)); }
  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    const uint8_t* planes = Record(index).data() + variant_.label_bytes;
    if (to.size() > 1 || to[0].dtype != DType::kFloat32) {
      const auto value_of = [planes](int64_t i) { return planes[i % kChannels * kPlane + i / kChannels]; };
      if (const auto bad = WriteRow(to, scale_, value_of)) {
        error_.Set(CannotHold(absl::StrCat("CIFAR: example ", index), *bad, value_of(*bad), to));
      }
      return;
    }
    auto* const floats = static_cast<float*>(to[0].data);
    for (int64_t channel = 0; channel < kChannels; ++channel) {
      const uint8_t* plane = planes + channel * kPlane;
      for (int64_t i = 0; i < kPlane; ++i) {
        floats[i * kChannels + channel] = scale_(static_cast<float>(plane[i]));
      }
    }
  }
  absl::Status status() const override { return error_.status(); }

 private:
  absl::Span<const uint8_t> Record(int64_t index) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const auto file = static_cast<size_t>(end - ends_.begin());
    const int64_t first = file == 0 ? 0 : ends_[file - 1];
    const auto bytes = static_cast<size_t>(variant_.record_bytes());
    return files_[file].span().subspan(static_cast<size_t>(index - first) * bytes, bytes);
  }

  const Variant variant_;
  const Scale scale_;
  const Shape row_shape_{kSide, kSide, kChannels};
  const std::vector<SharedBytes> files_;
  const ReadAhead read_ahead_;
  mutable FirstError error_;
  std::vector<int64_t> ends_;  // [files]: number of examples up to and including this file
};

// Adds the labels of the file at `path` to `labels`. INVALID_ARGUMENT if the file does not consist of whole
// records, or has an invalid label.
absl::Status ReadLabels(const std::string& path, const SharedBytes& file, Variant variant,
                        std::vector<float>& labels) {
  const auto size = static_cast<int64_t>(file.size());
  if (size == 0 || size % variant.record_bytes() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": has ", size, " bytes, not a multiple of the ", variant.record_bytes(), " that a record of ",
        variant.label_bytes, variant.label_bytes == 1 ? " label" : " labels", " and a 32x32x3 image takes"));
  }
  for (int64_t i = 0; i < size / variant.record_bytes(); ++i) {
    const int64_t label = file.data()[i * variant.record_bytes() + variant.label_bytes - 1];
    if (label >= variant.num_classes) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": record ", i, ": has the label ", label,
                                                     ", but CIFAR-", variant.num_classes,
                                                     " has labels up to ", variant.num_classes - 1));
    }
    labels.push_back(static_cast<float>(label));
  }
  return absl::OkStatus();
}

absl::StatusOr<Split> LoadSplit(const std::vector<std::string>& paths, Variant variant, float input_scale) {
  Split split;
  split.inputs_name = paths.front();
  split.targets_name = paths.front();
  split.targets.num_classes = variant.num_classes;
  std::vector<SharedBytes> files;
  for (const std::string& path : paths) {
    split.parts.push_back({path, static_cast<int64_t>(split.targets.values.size())});
    CAIRN_ASSIGN_OR_RETURN(files.emplace_back(), ReadFileBytes(path));
    CAIRN_RETURN_IF_ERROR(ReadLabels(path, files.back(), variant, split.targets.values));
  }
  split.byte_inputs = {true};
  split.inputs = std::make_unique<CifarRows>(variant, input_scale, std::move(files));
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
  Splits splits;
  CAIRN_ASSIGN_OR_RETURN(std::string remark, CheckPieces(train));
  if (!remark.empty()) splits.remarks.push_back(std::move(remark));
  if (cifar10 && train.size() < kCifar10Batches) {
    splits.remarks.push_back(absl::StrCat(options.path, ": has ", train.size(), " of the ", kCifar10Batches,
                                          " files data_batch_*.bin of CIFAR-10"));
  }
  const Variant variant = cifar10 ? kCifar10 : kCifar100;
  CAIRN_ASSIGN_OR_RETURN(splits.train, LoadSplit(train, variant, options.ScaleOf(0)));
  if (!validation.empty()) {
    CAIRN_ASSIGN_OR_RETURN(splits.validation, LoadSplit(validation, variant, options.ScaleOf(0)));
  }
  return splits;
}

}  // namespace cairn::data
