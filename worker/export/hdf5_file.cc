#include "worker/export/hdf5_file.h"

#include <hdf5.h>
#include <hdf5_hl.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"

namespace cairn::worker {
namespace {

constexpr int kMaxObjects = 1'000'000;
constexpr int kDeepest = 32;
constexpr size_t kLongestName = 4096;
constexpr size_t kLongestText = 64 << 20;  // limit in bytes for all strings of an attribute together

// An identifier of libhdf5, closed by the destructor.
template <herr_t (*kClose)(hid_t)>
class Handle {
 public:
  explicit Handle(hid_t id) : id_(id) {}
  ~Handle() {
    if (id_ >= 0) kClose(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  const hid_t id_;
};
using Object = Handle<H5Oclose>;
using Attribute = Handle<H5Aclose>;
using Space = Handle<H5Sclose>;
using Type = Handle<H5Tclose>;
using Properties = Handle<H5Pclose>;

// The innermost message of the last failed call on this thread.
std::string Reason() {
  std::string reason;
  const auto keep = [](unsigned, const H5E_error2_t* error, void* to) -> herr_t {
    if (error->desc != nullptr && *error->desc != '\0') *static_cast<std::string*>(to) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep, &reason);
  H5Eclear2(H5E_DEFAULT);
  return reason.empty() ? "damaged" : reason;
}

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", Reason()));
}

// Suppresses libhdf5's messages on stderr, and the loading of plugins that a file requests.
void Quieten() {
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
}

// The strings of an attribute, of fixed or variable length; empty if it holds something else.
absl::StatusOr<std::vector<std::string>> TextsOf(const Attribute& attribute, size_t longest) {
  const Type type(H5Aget_type(attribute.get()));
  const Space space(H5Aget_space(attribute.get()));
  if (!type.ok() || !space.ok()) return Damaged("its type");
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (count < 0 || count > kMaxObjects) return absl::InvalidArgumentError("holds too many strings");
  std::vector<std::string> texts;
  if (H5Tget_class(type.get()) != H5T_STRING || count == 0) return texts;
  const auto strings = static_cast<size_t>(count);
  const Type memory(H5Tcopy(type.get()));
  if (H5Tis_variable_str(type.get()) > 0) {
    std::vector<char*> read(strings, nullptr);
    if (H5Aread(attribute.get(), memory.get(), read.data()) < 0) return Damaged("its value");
    for (char* text : read) {
      texts.emplace_back(text == nullptr ? "" : text);
      H5free_memory(text);
    }
  } else {
    const size_t size = H5Tget_size(type.get());
    if (size == 0 || size > longest / strings) return absl::InvalidArgumentError("its strings are too long");
    std::string all(size * strings, '\0');
    if (H5Aread(attribute.get(), memory.get(), all.data()) < 0) return Damaged("its value");
    for (size_t i = 0; i < strings; ++i) {
      const std::string text = all.substr(i * size, size);
      texts.push_back(text.substr(0, text.find('\0')));
    }
  }
  for (const std::string& text : texts) {
    if (text.size() > longest) return absl::InvalidArgumentError("its strings are too long");
  }
  return texts;
}

// The strings of an attribute of an open object; nullopt if the attribute does not exist.
absl::StatusOr<std::optional<std::vector<std::string>>> ReadTexts(hid_t object, const std::string& name,
                                                                  size_t longest) {
  if (H5Aexists(object, name.c_str()) <= 0) return std::nullopt;
  const Attribute attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT));
  if (!attribute.ok()) return Damaged(absl::StrCat("attribute ", name));
  auto texts = TextsOf(attribute, longest);
  if (!texts.ok()) return Annotate(texts.status(), absl::StrCat("attribute ", name));
  return *std::move(texts);
}

absl::StatusOr<Shape> ShapeOf(const Object& dataset) {
  const Space space(H5Dget_space(dataset.get()));
  if (!space.ok()) return Damaged("its shape");
  const H5S_class_t kind = H5Sget_simple_extent_type(space.get());
  if (kind != H5S_SIMPLE && kind != H5S_SCALAR) return absl::InvalidArgumentError("has no values");
  const int rank = H5Sget_simple_extent_ndims(space.get());
  hsize_t sizes[H5S_MAX_RANK];
  if (rank < 0 || H5Sget_simple_extent_dims(space.get(), sizes, nullptr) < 0) return Damaged("its shape");
  std::vector<int64_t> dims;
  for (int i = 0; i < rank; ++i) {
    if (sizes[i] > static_cast<hsize_t>(INT64_MAX)) return absl::InvalidArgumentError("its shape: too large");
    dims.push_back(static_cast<int64_t>(sizes[i]));
  }
  return Shape::FromUntrusted(dims);
}

// Walks the groups of a file and fills the maps of shapes and of group names.
class Lister {
 public:
  Lister(std::map<std::string, Shape>& shapes, std::map<std::string, std::string>& names)
      : shapes_(shapes), names_(names) {}

  // `path` ends in '/', or is empty for the root.
  absl::Status Group(hid_t group, const std::string& path, int depth) {
    if (depth > kDeepest)
      return absl::InvalidArgumentError(absl::StrCat(path, ": groups are nested too deeply"));
    const auto name = ReadTexts(group, "name", kLongestName);
    if (!name.ok()) return Annotate(name.status(), path);
    if (name->has_value())
      names_[std::string(absl::StripSuffix(path, "/"))] = (*name)->size() == 1 ? (*name)->front() : "";
    std::vector<std::string> links;
    const auto keep = [](hid_t, const char* name, const H5L_info_t* info, void* to) -> herr_t {
      auto& names = *static_cast<std::vector<std::string>*>(to);
      if (info->type == H5L_TYPE_HARD) names.emplace_back(name);  // other links may leave the file
      return names.size() > kMaxObjects ? -1 : 0;
    };
    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, keep, &links) < 0)
      return Damaged(absl::StrCat("group ", path));
    for (const std::string& link : links) CAIRN_RETURN_IF_ERROR(Member(group, link, path + link, depth));
    return absl::OkStatus();
  }

 private:
  absl::Status Member(hid_t group, const std::string& link, const std::string& path, int depth) {
    if (++objects_ > kMaxObjects)
      return absl::InvalidArgumentError(absl::StrCat("has more than ", kMaxObjects, " objects"));
    const Object object(H5Oopen(group, link.c_str(), H5P_DEFAULT));
    if (!object.ok()) return Damaged(path);
    const H5I_type_t kind = H5Iget_type(object.get());
    if (kind == H5I_GROUP) return Group(object.get(), path + "/", depth + 1);
    if (kind != H5I_DATASET) return absl::OkStatus();
    auto shape = ShapeOf(object);
    if (!shape.ok()) return Annotate(shape.status(), path);
    shapes_[path] = *std::move(shape);
    return absl::OkStatus();
  }

  std::map<std::string, Shape>& shapes_;
  std::map<std::string, std::string>& names_;
  int objects_ = 0;
};

}  // namespace

absl::StatusOr<Hdf5File> Hdf5File::Open(data::SharedBytes bytes) {
  Quieten();
  // The file is opened for reading: the image is neither copied nor written to.
  void* image = const_cast<uint8_t*>(bytes.data());
  const hid_t id =
      H5LTopen_file_image(image, bytes.size(), H5LT_FILE_IMAGE_DONT_COPY | H5LT_FILE_IMAGE_DONT_RELEASE);
  if (id < 0) return absl::InvalidArgumentError("is not readable HDF5");  // libhdf5 gives no reason here
  Hdf5File file(std::move(bytes), id);
  CAIRN_RETURN_IF_ERROR(file.List());
  return file;
}

Hdf5File::~Hdf5File() {
  if (file_ >= 0) H5Fclose(file_);
}

Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : bytes_(std::move(other.bytes_)),
      file_(std::exchange(other.file_, -1)),
      shapes_(std::move(other.shapes_)),
      group_names_(std::move(other.group_names_)) {}

absl::Status Hdf5File::List() {
  const Object root(H5Oopen(file_, "/", H5P_DEFAULT));
  if (!root.ok()) return Damaged("its root");
  return Lister(shapes_, group_names_).Group(root.get(), "", 0);
}

absl::StatusOr<std::optional<std::string>> Hdf5File::RootText(const std::string& attribute) const {
  const Object root(H5Oopen(file_, "/", H5P_DEFAULT));
  if (!root.ok()) return Damaged("its root");
  CAIRN_ASSIGN_OR_RETURN(auto texts, ReadTexts(root.get(), attribute, kLongestText));
  if (!texts.has_value()) return std::nullopt;
  if (texts->size() != 1) return absl::InvalidArgumentError(absl::StrCat(attribute, ": is not a string"));
  return std::move(texts->front());
}

absl::StatusOr<std::optional<std::vector<std::string>>> Hdf5File::GroupTexts(
    const std::string& path, const std::string& attribute) const {
  const Object group(H5Oopen(file_, path.empty() ? "/" : path.c_str(), H5P_DEFAULT));
  if (!group.ok()) {
    H5Eclear2(H5E_DEFAULT);
    return std::nullopt;
  }
  CAIRN_ASSIGN_OR_RETURN(auto texts, ReadTexts(group.get(), attribute, kLongestText));
  if (texts.has_value()) return texts;
  std::vector<std::string> joined;
  for (int piece = 0;; ++piece) {
    CAIRN_ASSIGN_OR_RETURN(auto more, ReadTexts(group.get(), absl::StrCat(attribute, piece), kLongestText));
    if (!more.has_value()) break;
    joined.insert(joined.end(), more->begin(), more->end());
  }
  if (joined.empty()) return std::nullopt;
  return joined;
}

absl::Status Hdf5File::Read(const std::string& path, absl::Span<float> to) const {
  const auto shape = shapes_.find(path);
  if (shape == shapes_.end() || shape->second.num_elements() != static_cast<int64_t>(to.size()))
    return absl::InternalError(absl::StrCat("requested with another size: ", path));
  const Object dataset(H5Oopen(file_, path.c_str(), H5P_DEFAULT));
  if (!dataset.ok()) return Damaged("cannot be opened");
  const Type type(H5Dget_type(dataset.get()));
  if (!type.ok()) return Damaged("its type");
  const H5T_class_t kind = H5Tget_class(type.get());
  const bool counter = kind == H5T_INTEGER && to.size() == 1;
  if (kind != H5T_FLOAT && !counter) return absl::InvalidArgumentError("is not floating point");
  const Properties how(H5Dget_create_plist(dataset.get()));
  if (!how.ok()) return Damaged("its layout");
  if (H5Pget_layout(how.get()) == H5D_VIRTUAL || H5Pget_external_count(how.get()) > 0)
    return absl::InvalidArgumentError("is stored in another file");
  if (H5Dread(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, to.data()) < 0)
    return Damaged("its values");
  return absl::OkStatus();
}

}  // namespace cairn::worker
