// Folders of PNG and JPEG images, one for each class (class_folders.h).
//
// Loading reads each image's header. The image is read and decoded each time its example is requested, so the
// set takes little memory.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/core/status.h"
#include "data/class_folders.h"
#include "data/file/byte_reader.h"
#include "data/first_error.h"
#include "data/formats.h"
#include "data/image/image.h"
#include "data/row_writer.h"

namespace cairn::data {
namespace {

// Whether `path` has the suffix of an image. Suffixes of unsupported formats count, so that such files are
// refused instead of ignored.
bool IsImageName(const std::filesystem::path& path) {
  const std::string ending = absl::AsciiStrToLower(path.extension().string());
  for (const char* known : {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff"}) {
    if (ending == known) return true;
  }
  return false;
}

absl::Status DecodeFile(const std::string& path, const Shape& shape, absl::Span<uint8_t> pixels) {
  CAIRN_ASSIGN_OR_RETURN(const SharedBytes bytes, ReadFileBytes(path));
  return Annotate(DecodeImage(bytes.span(), shape, pixels), path);
}

// Decodes an image whenever its row is read.
class ImageRows final : public RowSource {
 public:
  ImageRows(std::vector<std::string> paths, Shape shape, float input_scale)
      : paths_(std::move(paths)), shape_(std::move(shape)), scale_(ScaleOf(input_scale, /*bytes=*/true)) {}

  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  const Shape& row_shape() const override { return shape_; }
  void Prefetch(int64_t) const override {}
  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    std::vector<uint8_t> pixels(static_cast<size_t>(shape_.num_elements()));
    error_.Set(DecodeFile(paths_[static_cast<size_t>(index)], shape_, absl::MakeSpan(pixels)));
    const auto value_of = [&pixels](int64_t i) { return pixels[static_cast<size_t>(i)]; };
    if (const auto bad = WriteRow(to, scale_, value_of)) {
      error_.Set(CannotHold(paths_[static_cast<size_t>(index)], *bad, value_of(*bad), to));
    }
  }
  absl::Status status() const override { return error_.status(); }

 private:
  const std::vector<std::string> paths_;
  const Shape shape_;
  const Scale scale_;
  mutable FirstError error_;
};

// Rows of the images at `paths`, which must all have one shape: the model's input shape, or the first
// image's.
absl::StatusOr<std::unique_ptr<RowSource>> MakeImageRows(std::vector<std::string> paths,
                                                         const DataOptions& options) {
  Shape shape;
  for (const std::string& path : paths) {
    CAIRN_ASSIGN_OR_RETURN(const SharedBytes bytes, ReadFileBytes(path));
    const auto header = ReadImageHeader(bytes.span());
    if (!header.ok()) return Annotate(header.status(), path);
    if (shape.rank() == 0) shape = PixelShapeFor(*header, options.example_shape);
    CAIRN_RETURN_IF_ERROR(Annotate(CheckFits(*header, shape), path));
  }
  return std::make_unique<ImageRows>(std::move(paths), std::move(shape), options.ScaleOf(0));
}

constexpr FileKind kImages = {.one = "image",
                              .several = "images",
                              .is_example = &IsImageName,
                              .make_rows = &MakeImageRows,
                              .bytes = true};

}  // namespace

std::vector<std::string> FindImageSet(const std::string& directory) {
  return FindClassFolders(kImages, directory);
}

LoadedSplits LoadImageDirectory(const DataOptions& options) {
  return LoadClassFolders(kImages, options);
}

LoadedExamples LoadImageExamples(const DataOptions& options) {
  return LoadClassFolderExamples(kImages, options);
}

}  // namespace cairn::data
