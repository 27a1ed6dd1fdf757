// The arrays into which TorchRec converts Criteo's click logs, three files for each day: day_N_dense.npy float32
// [examples, 13], day_N_sparse.npy int32 [examples, 26] and day_N_labels.npy int32 [examples, 1]. Plain files are
// mapped and may be larger than the memory.
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"
#include "data/array/array_file.h"
#include "data/array/read_ahead.h"
#include "data/file_sets.h"
#include "data/first_error.h"
#include "data/formats.h"
#include "data/row_writer.h"

namespace cairn::data {
namespace {

struct TorchrecDay {
  std::string path;   // "ctr/day_0", before "_dense.npy"
  int64_t first = 0;  // example
  Array dense, sparse;
};

// An input of the model: all columns of an array, or one.
struct TorchrecInput {
  bool sparse = false;
  std::optional<int64_t> column{};
  int64_t values = 0;
  Scale scale{};
};

class TorchrecRows final : public RowSource {
 public:
  TorchrecRows(std::vector<TorchrecInput> inputs, std::vector<TorchrecDay> days)
      : inputs_(std::move(inputs)), days_(std::move(days)), read_ahead_(BytesOf(days_)) {
    int64_t values = 0;
    for (const TorchrecInput& input : inputs_) values += input.values;
    row_shape_ = {values};
  }

  int64_t size() const override { return days_.back().first + days_.back().dense.shape[0]; }
  const Shape& row_shape() const override { return row_shape_; }
  void Prefetch(int64_t index) const override {
    const TorchrecDay& day = DayOf(index);
    for (const Array* array : {&day.dense, &day.sparse}) {
      const auto bytes = static_cast<size_t>(array->shape.row_elements() * SizeOf(array->type));
      read_ahead_.Fetch(array->bytes.span().subspan(static_cast<size_t>(index - day.first) * bytes, bytes));
    }
  }
  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    const TorchrecDay& day = DayOf(index);
    RowCursor cursor(to);
    for (const TorchrecInput& input : inputs_) {
      const Array& array = input.sparse ? day.sparse : day.dense;
      const auto pieces = cursor.Take(input.values);
      WithType(array.type, [&](auto zero) {
        using T = decltype(zero);
        const int64_t begin = (index - day.first) * array.shape.row_elements() + input.column.value_or(0);
        const auto value = [&](int64_t i) { return ElementAt<T>(array.bytes.data(), begin + i); };
        const auto bad = WriteRow(pieces, input.scale, value);
        if (!bad) return;
        error_.Set(CannotHold(absl::StrCat(day.path, "_sparse.npy: example ", index - day.first), *bad,
                              value(*bad), pieces));
      });
    }
  }
  absl::Status status() const override { return error_.status(); }

 private:
  static std::vector<SharedBytes> BytesOf(const std::vector<TorchrecDay>& days) {
    std::vector<SharedBytes> bytes;
    for (const TorchrecDay& day : days) {
      bytes.push_back(day.dense.bytes);
      bytes.push_back(day.sparse.bytes);
    }
    return bytes;
  }
  const TorchrecDay& DayOf(int64_t example) const {
    return *std::prev(
        std::upper_bound(days_.begin(), days_.end(), example,
                         [](int64_t index, const TorchrecDay& day) { return index < day.first; }));
  }

  const std::vector<TorchrecInput> inputs_;
  const std::vector<TorchrecDay> days_;
  const ReadAhead read_ahead_;
  Shape row_shape_;
  mutable FirstError error_;
};

// "DIR/day_N" for each N with one of the three files, in the order of N.
std::vector<std::string> FindStemsOfDays(const std::string& directory) {
  std::vector<std::string> stems;
  for (const std::string& file : FindDays(directory, {"_dense.npy", "_sparse.npy", "_labels.npy"})) {
    std::string stem = file.substr(0, file.rfind('_'));
    if (stems.empty() || stems.back() != stem) stems.push_back(std::move(stem));
  }
  return stems;
}

// An array of one day [examples, columns].
absl::StatusOr<Array> ReadOfDay(const std::string& path, bool integers) {
  CAIRN_ASSIGN_OR_RETURN(Array array, ReadArrayFile(path));
  if (array.shape.rank() == 2 && array.shape.num_elements() > 0 && (!integers || IsInteger(array.type)))
    return array;
  return absl::InvalidArgumentError(absl::StrCat(path, ": is ", NameOf(array.type), " ",
                                                 array.shape.ToString(), ", not ",
                                                 integers ? "integers " : "", "[examples, columns]"));
}

// The column 2 for "C3" if `letter` is C.
std::optional<int64_t> ColumnNamed(absl::string_view name, absl::string_view letter) {
  if (!absl::ConsumePrefix(&name, letter)) return std::nullopt;
  const auto column = WholeNumber(name);
  if (!column || *column < 1) return std::nullopt;
  return *column - 1;
}

absl::StatusOr<std::vector<TorchrecInput>> MakeInputs(const DataOptions& options, const TorchrecDay& day) {
  if (options.input_types.empty())
    return absl::InvalidArgumentError("these arrays are read for a model, whose inputs are not known");
  std::vector<TorchrecInput> inputs;
  for (size_t i = 0; i < options.input_types.size(); ++i) {
    TorchrecInput input = {.sparse = IsInteger(options.input_types[i]),
                           .values = options.input_shapes[i].num_elements(),
                           .scale = ScaleOf(options.ScaleOf(i), /*bytes=*/false)};
    const Array& array = input.sparse ? day.sparse : day.dense;
    input.column = ColumnNamed(options.input_names[i], input.sparse ? "C" : "I");
    const int64_t columns = array.shape.row_elements();
    if (options.IsRagged(i) ||
        (input.column ? input.values != 1 || *input.column >= columns : input.values != columns)) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", options.input_names[i], "' of the model takes ",
                       options.IsRagged(i) ? "any number of" : absl::StrCat(input.values), " values, but ",
                       input.sparse ? "the sparse arrays have " : "the dense arrays have ", columns,
                       " columns; an input with the name of a column (", input.sparse ? "C1, C2" : "I1, I2",
                       ", ...) takes one"));
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

absl::StatusOr<Split> ReadDays(const DataOptions& options, absl::Span<const std::string> paths) {
  Split split;
  std::vector<TorchrecDay> days;
  for (const std::string& path : paths) {
    TorchrecDay& day = days.emplace_back(
        TorchrecDay{.path = path, .first = split.targets.size(), .dense = {}, .sparse = {}});
    const std::string labels_path = absl::StrCat(path, "_labels.npy");
    CAIRN_ASSIGN_OR_RETURN(day.dense, ReadOfDay(absl::StrCat(path, "_dense.npy"), false));
    CAIRN_ASSIGN_OR_RETURN(day.sparse, ReadOfDay(absl::StrCat(path, "_sparse.npy"), true));
    CAIRN_ASSIGN_OR_RETURN(const Array labels, ReadArrayFile(labels_path));
    CAIRN_ASSIGN_OR_RETURN(const Targets targets, ReadTargets(labels, labels_path));
    const int64_t examples = day.dense.shape[0];
    if (day.sparse.shape[0] != examples || targets.size() != examples || targets.per_example != 1) {
      return absl::InvalidArgumentError(absl::StrCat(path, "_dense.npy has ", examples, " examples, but ",
                                                     path, "_sparse.npy has ", day.sparse.shape[0], " and ",
                                                     labels_path, " ", labels.shape.ToString()));
    }
    for (const auto& [array, first, name] : {std::tuple(&day.dense, &days[0].dense, "dense"),
                                             std::tuple(&day.sparse, &days[0].sparse, "sparse")}) {
      if (array->shape[1] == first->shape[1]) continue;
      return absl::InvalidArgumentError(absl::StrCat(path, "_", name, ".npy has ", array->shape[1],
                                                     " columns, but ", paths[0], "_", name, ".npy has ",
                                                     first->shape[1]));
    }
    split.parts.push_back({absl::StrCat(path, "_labels.npy"), day.first});
    split.targets.values.insert(split.targets.values.end(), targets.values.begin(), targets.values.end());
  }
  split.targets.num_classes = ClassesIn(split.targets.values);
  split.inputs_name = absl::StrCat(paths[0], "_dense.npy");
  split.targets_name = absl::StrCat(paths[0], "_labels.npy");
  auto inputs = MakeInputs(options, days[0]);
  if (!inputs.ok()) return Annotate(inputs.status(), split.inputs_name);
  split.inputs = std::make_unique<TorchrecRows>(*std::move(inputs), std::move(days));
  return split;
}

}  // namespace

LoadedSplits LoadTorchrecNpy(const DataOptions& options) {
  const std::vector<std::string> days = FindStemsOfDays(options.path);
  if (days.empty()) return std::nullopt;
  const size_t training = days.size() == 1 ? 1 : days.size() - 1;
  Splits splits;
  CAIRN_ASSIGN_OR_RETURN(std::string remark, CheckPieces(days));
  if (!remark.empty()) splits.remarks.push_back(std::move(remark));
  CAIRN_ASSIGN_OR_RETURN(splits.train, ReadDays(options, absl::MakeConstSpan(days).first(training)));
  if (training == days.size()) return splits;
  CAIRN_ASSIGN_OR_RETURN(splits.validation, ReadDays(options, {&days.back(), 1}));
  return splits;
}

}  // namespace cairn::data
