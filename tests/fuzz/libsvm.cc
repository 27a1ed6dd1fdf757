// libsvm and libffm: one line, and data sets for ragged inputs, inputs of a fixed size and vectors.
#include "data/libsvm/libsvm_line.h"
#include "tests/fuzz/data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  static const fuzz::ScratchFolder folder;
  const absl::string_view text = fuzz::TextOf(data, size);
  data::LibsvmLine line;
  if (const absl::Status status = data::ParseLibsvmLine(data::WithoutComment(text), line); !status.ok()) {
    FUZZ_CHECK(!status.message().empty());
  } else {
    for (const data::LibsvmEntry& entry : line.entries) FUZZ_CHECK(entry.index >= 0 && entry.field >= 0);
  }
  const std::string path = folder.Write("x.libsvm", text);
  fuzz::LoadAndRead({.path = path,
                     .input_names = {"ids", "values", "fields", "field_3"},
                     .input_shapes = {{1}, {1}, {1}, {1}},
                     .input_types = {DType::kInt64, DType::kFloat32, DType::kInt32, DType::kInt64},
                     .ragged_inputs = {true, true, true, true},
                     .table_rows = {7, 0, 7, 7},
                     .weights_of = {-1, 0, -1, -1},
                     .max_bad_rows = 2,
                     .hash_ids = true});
  fuzz::LoadAndRead({.path = path,
                     .input_names = {"ids", "values"},
                     .input_shapes = {{3}, {3}},
                     .input_types = {DType::kInt32, DType::kFloat32},
                     .max_bad_rows = 2});
  fuzz::LoadAndRead(
      {.path = path, .input_names = {"x"}, .input_shapes = {{5}}, .input_types = {DType::kFloat32}});
  return 0;
}
