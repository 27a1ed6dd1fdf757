#include "worker/checkpoint/state_file.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/core/json.h"
#include "common/core/status.h"
#include "worker/checkpoint/file_io.h"

namespace cairn::worker {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kFormat = 1;
constexpr int64_t kMaxVersionOffset = int64_t{1} << 60;

// The last bytes of the file: the checksum of `body`, the bytes before them.
std::string GuardOf(absl::string_view body) {
  return absl::StrFormat(",\n \"crc32\": \"%08x\"\n}\n", Crc32(0, body));
}

// The fields of each structure, used for reading and for writing.
template <typename Fields, typename Run>
void RunFields(Fields& fields, Run& run) {
  fields("global_step", run.global_step);
  fields("mode", run.mode);
  fields("run_id", run.run_id);
  fields("model_sha256", run.model_sha256);
  fields("optimizer", run.optimizer);
  fields("hyperparameters", run.hyperparameters);
  fields("slots", run.slots);
  fields("learning_rate", run.learning_rate);
  fields("groups", run.groups);
  fields("empty_updates", run.empty_updates);
  fields("seed", run.seed);
  fields("batch_size", run.batch_size);
  fields("num_workers", run.num_workers);
  fields("final_version", run.final_version);
  fields("epochs", run.epochs);
  fields("num_examples", run.num_examples);
  fields("version_offset", run.version_offset);
  fields("positions", run.positions);
  fields("data", run.data);
  fields("tables", run.tables);
  fields("examples", run.examples);
  fields("accepted", run.accepted);
  fields("stale", run.stale);
  fields("duplicate", run.duplicate);
  fields("rejected", run.rejected);
  fields("staleness_max", run.staleness_max);
  fields("staleness_histogram", run.staleness_histogram);
  fields("saved_at", run.saved_at);
}
template <typename Fields, typename Data>
void PartFields(Fields& fields, Data& data, const DataState*) {
  fields("num_examples", data.num_examples);
  fields("next", data.next);
  fields("open", data.open);
  fields("missed", data.missed);
  fields("repeated", data.repeated);
}
template <typename Fields, typename Group>
void PartFields(Fields& fields, Group& group, const GroupState*) {
  fields("learning_rate", group.learning_rate);
  fields("untouched", group.untouched);
  fields("hyperparameters", group.hyperparameters);
  fields("untouched_updates", group.untouched_updates);
}
template <typename Fields, typename Table>
void PartFields(Fields& fields, Table& table, const TableRun*) {
  fields("name", table.name);
  fields("vocabulary_size", table.vocabulary_size);
  fields("dim", table.dim);
  fields("seed", table.seed);
  fields("distribution", table.distribution);
  fields("center", table.center);
  fields("spread", table.spread);
  fields("optimizer", table.optimizer);
  fields("hyperparameters", table.hyperparameters);
  fields("slots", table.slots);
  fields("slot_floats", table.slot_floats);
  fields("learning_rate", table.learning_rate);
}
template <typename Fields, typename Tensor>
void PartFields(Fields& fields, Tensor& tensor, const TensorEntry*) {
  fields("name", tensor.name);
  fields("shape", tensor.shape);
  fields("row_begin", tensor.row_begin);
  fields("row_end", tensor.row_end);
  fields("crc32", tensor.crc32);
  fields("dtype", tensor.type);
}
template <typename Fields, typename File>
void PartFields(Fields& fields, File& file, const FileEntry*) {
  fields("name", file.name);
  fields("bytes", file.bytes);
  fields("head_bytes", file.head_bytes);
  fields("head_crc32", file.head_crc32);
  fields("tensors", file.tensors);
}
template <typename Fields, typename State>
void StateFields(Fields& fields, State& state) {
  RunFields(fields, state.run);
  fields("model_bytes", state.model_bytes);
  fields("model_crc32", state.model_crc32);
  fields("files", state.files);
}

class Writer {
 public:
  template <typename T>
  void operator()(const char* key, const T& value) {
    json_[key] = Of(value);
  }
  // Float32 is not written: it is the type of all tensors of older files.
  void operator()(const char* key, TensorType type) {
    if (type != TensorType::kF32) json_[key] = std::string(NameOf(type));
  }
  OrderedJson Take() && { return std::move(json_); }

 private:
  static OrderedJson Of(const std::string& value) { return value; }
  static OrderedJson Of(bool value) { return value; }
  static OrderedJson Of(int64_t value) { return value; }
  static OrderedJson Of(uint64_t value) { return value; }
  static OrderedJson Of(uint32_t value) { return value; }
  // JSON has no notation for NaN and infinity.
  static OrderedJson Of(double value) {
    if (std::isfinite(value)) return value;
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  }
  static OrderedJson Of(const std::optional<float>& value) {
    return value.has_value() ? Of(static_cast<double>(*value)) : OrderedJson();
  }
  static OrderedJson Of(const std::optional<DataState>& value) {
    return value.has_value() ? Of(*value) : OrderedJson();
  }
  static OrderedJson Of(const std::optional<int64_t>& value) {
    return value.has_value() ? Of(*value) : OrderedJson();
  }
  static OrderedJson Of(const std::optional<std::map<std::string, double>>& value) {
    return value.has_value() ? Of(*value) : OrderedJson();
  }
  static OrderedJson Of(const std::optional<std::vector<GroupState>>& value) {
    return value.has_value() ? Of(*value) : OrderedJson();
  }
  static OrderedJson Of(const std::optional<std::vector<TableRun>>& value) {
    return value.has_value() ? Of(*value) : OrderedJson();
  }
  static OrderedJson Of(const Shape& shape) { return OrderedJson(shape.dims()); }
  template <typename T>
  static OrderedJson Of(const std::vector<T>& values) {
    OrderedJson array = OrderedJson::array();
    for (const T& value : values) array.push_back(Of(value));
    return array;
  }
  static OrderedJson Of(const std::map<std::string, double>& values) {
    OrderedJson object = OrderedJson::object();
    for (const auto& [key, value] : values) object[key] = Of(value);
    return object;
  }
  template <typename Part>
  static OrderedJson Of(const Part& part) {
    Writer fields;
    PartFields(fields, part, static_cast<const Part*>(nullptr));
    return std::move(fields).Take();
  }

  OrderedJson json_ = OrderedJson::object();
};

// Keeps the first fault: "files[1].tensors[0].shape: ...".
class Reader {
 public:
  explicit Reader(const nlohmann::json& json, std::string where = "")
      : json_(json), where_(std::move(where)) {}

  template <typename T>
  void operator()(const char* key, T& value) {
    if (!fault_.empty()) return;
    const std::string where = absl::StrCat(where_, key);
    const auto found = json_.is_object() ? json_.find(key) : json_.end();
    fault_ = found == json_.end() ? absl::StrCat(where, " is missing") : Read(*found, where, value);
  }
  void operator()(const char* key, std::optional<DataState>& value) { ReadIfThere(key, value); }
  void operator()(const char* key, std::optional<int64_t>& value) { ReadIfThere(key, value); }
  void operator()(const char* key, std::optional<std::map<std::string, double>>& value) {
    ReadIfThere(key, value);
  }
  void operator()(const char* key, std::optional<std::vector<GroupState>>& value) { ReadIfThere(key, value); }
  void operator()(const char* key, std::optional<std::vector<TableRun>>& value) { ReadIfThere(key, value); }
  void operator()(const char* key, TensorType& type) {
    std::optional<std::string> name;
    ReadIfThere(key, name);
    type = name == NameOf(TensorType::kI64) ? TensorType::kI64 : TensorType::kF32;
    if (fault_.empty() && name.has_value() && *name != NameOf(type)) {
      fault_ = Fault(absl::StrCat(where_, key), "is neither F32 nor I64");
    }
  }
  const std::string& fault() const { return fault_; }

 private:
  using In = const nlohmann::json&;

  // Reads a field that is absent in some jobs and in older files.
  template <typename T>
  void ReadIfThere(const char* key, std::optional<T>& value) {
    value.reset();
    if (!fault_.empty() || !json_.is_object() || !json_.contains(key) || json_[key].is_null()) return;
    fault_ = Read(json_[key], absl::StrCat(where_, key), value.emplace());
  }

  static std::string Fault(const std::string& where, absl::string_view what) {
    return absl::StrCat(where, " ", what);
  }
  static std::string Read(In json, const std::string& where, std::string& value) {
    if (!json.is_string()) return Fault(where, "is not a string");
    value = json.get<std::string>();
    return "";
  }
  static std::string Read(In json, const std::string& where, bool& value) {
    if (!json.is_boolean()) return Fault(where, "is neither true nor false");
    value = json.get<bool>();
    return "";
  }
  static std::string Read(In json, const std::string& where, int64_t& value) {
    if (!json.is_number_integer() ||
        (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX})) {
      return Fault(where, "is not a 64-bit integer");
    }
    value = json.get<int64_t>();
    return "";
  }
  static std::string Read(In json, const std::string& where, uint64_t& value) {
    if (!json.is_number_unsigned()) return Fault(where, "is not an integer of at least 0");
    value = json.get<uint64_t>();
    return "";
  }
  static std::string Read(In json, const std::string& where, uint32_t& value) {
    uint64_t wide = 0;
    if (std::string fault = Read(json, where, wide); !fault.empty()) return fault;
    if (wide > std::numeric_limits<uint32_t>::max()) return Fault(where, "has more than 32 bits");
    value = static_cast<uint32_t>(wide);
    return "";
  }
  static std::string Read(In json, const std::string& where, double& value) {
    if (json.is_number()) {
      value = json.get<double>();
    } else if (json == "nan") {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (json == "inf" || json == "-inf") {
      value = std::numeric_limits<double>::infinity() * (json == "inf" ? 1 : -1);
    } else {
      return Fault(where, "is not a number");
    }
    return "";
  }
  static std::string Read(In json, const std::string& where, std::optional<float>& value) {
    double wide = 0;
    value.reset();
    if (json.is_null()) return "";
    if (std::string fault = Read(json, where, wide); !fault.empty()) return fault;
    if (std::isfinite(wide) && std::fabs(wide) > std::numeric_limits<float>::max()) {
      return Fault(where, "exceeds the range of float32");
    }
    value = static_cast<float>(wide);
    return "";
  }
  static std::string Read(In json, const std::string& where, Shape& value) {
    std::vector<int64_t> dims;
    if (std::string fault = Read(json, where, dims); !fault.empty()) return fault;
    auto shape = Shape::FromUntrusted(dims);
    if (!shape.ok()) return Fault(where, absl::StrCat(": ", shape.status().message()));
    value = *std::move(shape);
    return "";
  }
  template <typename T>
  static std::string Read(In json, const std::string& where, std::vector<T>& values) {
    if (!json.is_array()) return Fault(where, "is not a list");
    values.clear();
    for (size_t i = 0; i < json.size(); ++i) {
      const std::string element = absl::StrCat(where, "[", i, "]");
      if (std::string fault = Read(json[i], element, values.emplace_back()); !fault.empty()) return fault;
    }
    return "";
  }
  static std::string Read(In json, const std::string& where, std::map<std::string, double>& values) {
    if (!json.is_object()) return Fault(where, "is not an object");
    values.clear();
    for (const auto& [key, value] : json.items()) {
      std::string fault = Read(value, absl::StrCat(where, ".", key), values[key]);
      if (!fault.empty()) return fault;
    }
    return "";
  }
  template <typename Part>
  static std::string Read(In json, const std::string& where, Part& part) {
    Reader fields(json, absl::StrCat(where, "."));
    PartFields(fields, part, static_cast<const Part*>(nullptr));
    return fields.fault();
  }

  const nlohmann::json& json_;
  const std::string where_;
  std::string fault_;
};

// Checks that numbers have values that a job can reach, and keeps the first fault. The limits ensure that
// later sums do not overflow.
class RangeCheck {
 public:
  void NotNegative(absl::string_view field, int64_t value) {
    if (value < 0) Fault(field, absl::StrCat(value), "a number of at least 0");
  }
  void Count(absl::string_view field, int64_t value) {
    if (value < 0 || value > kMaxCount) Fault(field, absl::StrCat(value), absl::StrCat("0 to ", kMaxCount));
  }
  void Counts(absl::string_view field, const std::vector<int64_t>& values) {
    for (size_t i = 0; i < values.size(); ++i) Count(absl::StrCat(field, "[", i, "]"), values[i]);
  }
  void Rate(absl::string_view field, double value) {
    if (!std::isfinite(value) || value < 0)
      Fault(field, absl::StrCat(value), "a finite number of at least 0");
  }
  void Fault(absl::string_view field, absl::string_view value, absl::string_view wanted) {
    if (fault_.empty()) fault_ = absl::StrCat(field, " is ", value, ", not ", wanted);
  }
  const std::string& fault() const { return fault_; }

 private:
  // The limit for numbers of steps, examples and gradients. At 1e9 per second, a job reaches it after two
  // weeks. The sum of 8192 workers' numbers still fits into 64 bits.
  static constexpr int64_t kMaxCount = int64_t{1} << 50;

  std::string fault_;
};

void CheckRange(const TableRun& table, RangeCheck& check) {
  const auto field = [&](absl::string_view name) { return absl::StrCat("table '", table.name, "': ", name); };
  check.Count(field("vocabulary_size"), table.vocabulary_size);
  check.Count(field("dim"), table.dim);
  check.Counts(field("slot_floats"), table.slot_floats);
  check.Rate(field("learning_rate"), table.learning_rate);
  if (table.slots.size() != table.slot_floats.size()) {
    check.Fault(field("slot_floats"), absl::StrCat(table.slot_floats.size(), " numbers"),
                absl::StrCat("one for each of ", table.slots.size(), " slots"));
  }
}

void CheckRange(const DataState& data, RangeCheck& check) {
  check.Count("data.num_examples", data.num_examples);
  check.Count("data.next", data.next);
  check.Counts("data.open", data.open);
  check.Count("data.missed", data.missed);
  check.Count("data.repeated", data.repeated);
  if (data.open.size() % 2 != 0) {
    check.Fault("data.open", absl::StrCat(data.open.size(), " numbers"), "pairs of begin and count");
  }
  if (!check.fault().empty()) return;
  int64_t left = data.next;  // examples before data.next that the other open runs may contain
  for (size_t i = 1; i < data.open.size(); i += 2) {
    left -= data.open[i];
    if (left >= 0) continue;
    check.Fault(absl::StrCat("data.open[", i, "]"), absl::StrCat(data.open[i]),
                absl::StrCat("at most what is left of data.next ", data.next));
    return;
  }
}

std::string RangeFaultOf(const RunState& run) {
  RangeCheck check;
  check.Count("global_step", run.global_step);
  check.Count("empty_updates", run.empty_updates.value_or(0));
  check.NotNegative("batch_size", run.batch_size);
  check.NotNegative("num_workers", run.num_workers);
  check.NotNegative("final_version", run.final_version);
  check.NotNegative("epochs", run.epochs);
  check.Counts("positions", run.positions);
  check.Count("examples", run.examples);
  check.Count("accepted", run.accepted);
  check.Count("stale", run.stale);
  check.Count("duplicate", run.duplicate);
  check.Count("rejected", run.rejected);
  check.Count("staleness_max", run.staleness_max);
  check.Counts("staleness_histogram", run.staleness_histogram);
  if (run.learning_rate.has_value()) check.Rate("learning_rate", *run.learning_rate);
  const auto rate = run.hyperparameters.find("learning_rate");
  if (rate != run.hyperparameters.end()) check.Rate("hyperparameters.learning_rate", rate->second);
  for (const GroupState& group : run.groups.value_or(std::vector<GroupState>())) {
    if (group.learning_rate.has_value()) check.Rate("groups[].learning_rate", *group.learning_rate);
    check.Count("groups[].untouched_updates", group.untouched_updates.value_or(0));
  }
  if (run.data.has_value()) CheckRange(*run.data, check);
  for (const TableRun& table : run.tables.value_or(std::vector<TableRun>())) CheckRange(table, check);
  return check.fault();
}

// Finds faults that would break later sums and paths.
std::string FaultOf(const StateFile& state) {
  if (std::string fault = RangeFaultOf(state.run); !fault.empty()) return fault;
  if (const int64_t offset = state.run.version_offset.value_or(0);
      offset > state.run.global_step || offset < -kMaxVersionOffset) {
    return absl::StrCat("version_offset is ", offset, ", not ", -kMaxVersionOffset, " to the global_step");
  }
  for (const FileEntry& file : state.files) {
    if (file.name.empty() || absl::StrContains(file.name, "/") || absl::StartsWith(file.name, ".")) {
      return absl::StrCat("'", file.name, "' is not a valid file name");
    }
    for (const TensorEntry& tensor : file.tensors) {
      const int64_t rows = tensor.shape.rank() == 0 ? 1 : tensor.shape.dim(0);
      if (tensor.row_begin < 0 || tensor.row_end < tensor.row_begin || tensor.row_end > rows ||
          (tensor.shape.rank() == 0 && tensor.row_begin != 0)) {
        return absl::StrCat("tensor '", tensor.name, "': rows ", tensor.row_begin, " to ", tensor.row_end,
                            " of shape ", tensor.shape.ToString());
      }
    }
  }
  return "";
}

}  // namespace

Shape TensorEntry::rows_shape() const {
  Shape rows;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    rows.Append(axis == 0 ? row_end - row_begin : shape.dim(axis));
  }
  return rows;
}

absl::StatusOr<std::string> ToText(const StateFile& state) {
  Writer fields;
  fields("format", kFormat);
  StateFields(fields, state);
  try {
    const std::string text = std::move(fields).Take().dump(1);
    const absl::string_view body = absl::StripSuffix(text, "\n}");
    return absl::StrCat(body, GuardOf(body));
  } catch (const OrderedJson::exception&) {
    return absl::InvalidArgumentError(absl::StrCat(kStateFile, ": a string in it is not UTF-8"));
  }
}

absl::StatusOr<StateFile> ParseStateFile(absl::string_view text) {
  const auto loss = [](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(kStateFile, ": ", what));
  };
  const size_t guard_bytes = GuardOf("").size();
  if (text.size() < guard_bytes) return loss(absl::StrCat("only ", text.size(), " bytes"));
  const absl::string_view body = text.substr(0, text.size() - guard_bytes);
  if (text.substr(body.size()) != GuardOf(body)) return loss("its checksum does not match");
  const auto document = ParseJson(text, kStateFile);
  if (!document.ok()) return absl::DataLossError(document.status().message());

  Reader fields(*document);
  int64_t format = 0;
  fields("format", format);
  if (fields.fault().empty() && format != kFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat(kStateFile, ": format ", format, ", this program reads ", kFormat));
  }
  StateFile state;
  StateFields(fields, state);
  if (!fields.fault().empty()) return loss(fields.fault());
  if (const std::string fault = FaultOf(state); !fault.empty()) return loss(fault);
  return state;
}

}  // namespace cairn::worker
