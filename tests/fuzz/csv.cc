// CSV: as records, and as a data set that skips bad rows or refuses them.
#include "data/csv/csv.h"

#include "tests/fuzz/data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  static const fuzz::ScratchFolder folder;
  const absl::string_view text = fuzz::TextOf(data, size);
  data::CsvReader reader(text);
  std::vector<absl::string_view> fields;
  for (size_t records = 0;; ++records) {
    FUZZ_CHECK(records <= size);  // each takes at least a byte
    const int64_t line = reader.line();
    const auto more = reader.Next(fields);
    FUZZ_CHECK(reader.line() >= line);
    if (more.ok() ? !*more : absl::IsDataLoss(more.status())) break;
  }
  const std::string path = folder.Write("x.csv", text);
  fuzz::LoadAndRead({.path = path});
  fuzz::LoadAndRead({.path = path, .missing_value = 0.0f, .max_bad_rows = 2});
  fuzz::LoadAndRead({.path = path, .label_column = "0", .feature_columns = {"a", "b"}});
  fuzz::LoadAndRead({.path = path,
                     .input_names = {"ids"},
                     .input_shapes = {{1}},
                     .input_types = {DType::kInt64},
                     .ragged_inputs = {true},
                     .max_bad_rows = 2});
  fuzz::LoadAndRead({.path = path,
                     .input_names = {"ids", "w"},
                     .input_shapes = {{1}, {1}},
                     .input_types = {DType::kInt64, DType::kFloat32},
                     .ragged_inputs = {true, true},
                     .weights_of = {-1, 0},
                     .max_bad_rows = 2});
  return 0;
}
