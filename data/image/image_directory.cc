// Folders of PNG and JPEG images, one for each class, as for Keras' image_dataset_from_directory(). The
// classes are the folders' names in sorted order; a class has the images in its folder and in the folders
// below it. If there is a folder "train", the training set is in it, and the validation set in the first of
// validation, valid, val and test that exists. Otherwise all folders are the training set.
//
// Loading reads each image's header. The image is read and decoded each time its example is requested, so the
// set takes little memory.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/class_names.h"
#include "data/file/byte_reader.h"
#include "data/file_sets.h"
#include "data/first_error.h"
#include "data/formats.h"
#include "data/image/image.h"
#include "data/row_writer.h"

namespace cairn::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kValidationSets[] = {"validation", "valid", "val", "test"};

bool IsHidden(const fs::path& path) {
  return absl::StartsWith(path.filename().string(), ".");
}

// Whether `path` has the suffix of an image. Suffixes of unsupported formats count, so that such files are
// refused instead of ignored.
bool IsImageName(const fs::path& path) {
  const std::string ending = absl::AsciiStrToLower(path.extension().string());
  for (const char* known : {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff"}) {
    if (ending == known) return true;
  }
  return false;
}

// The folders in `directory` except hidden ones, sorted by name.
std::vector<std::string> FoldersIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;  // a directory that cannot be read counts as empty
  for (fs::directory_iterator entry(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->is_directory(error) && !IsHidden(entry->path()))
      names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The images in `directory`, sorted. With `below`, they include the images in the folders below it. As in
// Keras, links to folders are not followed.
absl::StatusOr<std::vector<std::string>> ImagesIn(const std::string& directory, bool below) {
  std::vector<std::string> paths;
  std::error_code error, of_entry;  // an entry that is a dangling link is not a directory
  for (fs::recursive_directory_iterator entry(directory, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->is_directory(of_entry)) {
      if (!below || IsHidden(entry->path())) entry.disable_recursion_pending();
    } else if (!IsHidden(entry->path()) && IsImageName(entry->path())) {
      paths.push_back(entry->path().string());
    }
  }
  // An unreadable folder may hold images, which would be missing from the set.
  if (error)
    return absl::InvalidArgumentError(absl::StrCat(directory, ": cannot be read: ", error.message()));
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string CountOf(size_t images) {
  return absl::StrCat(images, images == 1 ? " image" : " images");
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

// The images of one set and their classes.
struct ClassFolders {
  std::vector<std::string> paths;
  std::vector<float> labels;  // [image]
};

// The images below `directory` whose folders are among `class_names`. INVALID_ARGUMENT if any other folder
// has images.
absl::StatusOr<ClassFolders> FindImages(const std::string& directory,
                                        const std::vector<std::string>& class_names) {
  ClassFolders found;
  for (const std::string& folder : FoldersIn(directory)) {
    CAIRN_ASSIGN_OR_RETURN(std::vector<std::string> images,
                           ImagesIn(absl::StrCat(directory, "/", folder), /*below=*/true));
    const auto name = std::find(class_names.begin(), class_names.end(), folder);
    if (name == class_names.end()) {
      if (images.empty()) continue;
      return absl::InvalidArgumentError(absl::StrCat(directory, ": the folder '", folder,
                                                     "' is not one of the ", DescribeClasses(class_names)));
    }
    found.labels.resize(found.labels.size() + images.size(), static_cast<float>(name - class_names.begin()));
    std::move(images.begin(), images.end(), std::back_inserter(found.paths));
  }
  return found;
}

absl::StatusOr<Split> LoadSplit(const std::string& directory, const std::vector<std::string>& class_names,
                                const DataOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(ClassFolders found, FindImages(directory, class_names));
  if (found.paths.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(directory, ": has no images in class folders"));
  }
  Split split;
  split.inputs_name = directory;
  split.targets_name = directory;
  split.notes.push_back(
      absl::StrCat(directory, ": ", CountOf(found.paths.size()), ", ", DescribeClasses(class_names)));
  CAIRN_ASSIGN_OR_RETURN(split.inputs, MakeImageRows(std::move(found.paths), options));
  split.targets = {.values = std::move(found.labels),
                   .num_classes = static_cast<int64_t>(class_names.size())};
  split.class_names = class_names;
  split.byte_inputs = {true};
  return split;
}

// Appends a warning about images directly in `directory`, and folders there that are not in `read`.
absl::Status RemarkUnread(const std::string& directory, const std::vector<std::string>& read,
                          std::vector<std::string>& remarks) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> images, ImagesIn(directory, /*below=*/false));
  std::vector<std::string> unread;
  for (const std::string& image : images) unread.push_back(fs::path(image).filename().string());
  for (const std::string& folder : FoldersIn(directory)) {
    if (std::find(read.begin(), read.end(), folder) == read.end()) unread.push_back(folder + "/");
  }
  std::string remark = UnusedRemark(directory, std::move(unread));
  if (!remark.empty()) remarks.push_back(std::move(remark));
  return absl::OkStatus();
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// The folder that contains the training set's class folders.
std::string TrainingFolder(const std::string& directory) {
  const std::string train = absl::StrCat(directory, "/train");
  return IsFolder(train) ? train : directory;
}

// Whether `folder` itself has images. The folders below it are not searched, since there may be a whole disk
// below.
bool HoldsImages(const std::string& folder) {
  const auto images = ImagesIn(folder, /*below=*/false);
  return images.ok() && !images->empty();
}

}  // namespace

std::vector<std::string> FindImageSet(const std::string& directory) {
  const std::string training = TrainingFolder(directory);
  std::vector<std::string> folders;
  for (const std::string& folder : FoldersIn(training)) {
    if (!HoldsImages(absl::StrCat(training, "/", folder))) continue;
    if (training != directory) return {"train/"};
    folders.push_back(folder + "/");
  }
  return folders;
}

LoadedSplits LoadImageDirectory(const DataOptions& options) {
  if (!IsFolder(options.path)) return std::nullopt;
  if (FindImageSet(options.path).empty()) return std::nullopt;
  const std::string training = TrainingFolder(options.path);
  const bool named = training != options.path;  // the folder "train" exists
  const std::vector<std::string> classes = FoldersIn(training);
  Splits splits;
  CAIRN_ASSIGN_OR_RETURN(splits.train, LoadSplit(training, classes, options));
  CAIRN_RETURN_IF_ERROR(RemarkUnread(training, classes, splits.remarks));
  std::vector<std::string> sets = {"train"};
  for (const char* set : kValidationSets) {
    const std::string validation = absl::StrCat(options.path, "/", set);
    if (!IsFolder(validation)) continue;
    if (!named) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.path, ": has the folder '", set, "' but no folder 'train'"));
    }
    CAIRN_ASSIGN_OR_RETURN(splits.validation, LoadSplit(validation, classes, options));
    CAIRN_RETURN_IF_ERROR(RemarkUnread(validation, FoldersIn(validation), splits.remarks));
    sets.push_back(set);
    break;
  }
  if (named) CAIRN_RETURN_IF_ERROR(RemarkUnread(options.path, sets, splits.remarks));
  return splits;
}

LoadedExamples LoadImageExamples(const DataOptions& options) {
  if (!IsFolder(options.path)) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(std::vector<std::string> images, ImagesIn(options.path, /*below=*/false));
  if (images.empty()) {
    std::vector<std::string> classes =
        options.class_names.empty() ? FoldersIn(options.path) : options.class_names;
    CAIRN_ASSIGN_OR_RETURN(Split split, LoadSplit(options.path, classes, options));
    return split;
  }
  Split split;
  split.inputs_name = options.path;
  split.notes.push_back(
      absl::StrCat(options.path, ": ", CountOf(images.size()), " in the order of their names"));
  CAIRN_ASSIGN_OR_RETURN(split.inputs, MakeImageRows(std::move(images), options));
  return split;
}

}  // namespace cairn::data
