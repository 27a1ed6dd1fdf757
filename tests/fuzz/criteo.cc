// Criteo's click logs: one line, and a data set that skips bad lines or refuses them.
#include "data/criteo/criteo_line.h"
#include "tests/fuzz/data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  static const fuzz::ScratchFolder folder;
  const absl::string_view text = fuzz::TextOf(data, size);
  data::CriteoLine line;
  if (const absl::Status status = data::ParseCriteoLine(text, true, line); !status.ok()) {
    FUZZ_CHECK(!status.message().empty());
  } else {
    for (const auto& category : line.categories) {
      FUZZ_CHECK(data::CriteoId(category) >= 0 && data::CriteoId(category) <= int64_t{1} << 32);
    }
  }
  const std::string path = folder.Write("x.txt", text);
  fuzz::LoadAndRead({.path = path});
  fuzz::LoadAndRead({.path = path,
                     .input_names = {"dense", "ids"},
                     .input_shapes = {{13}, {26}},
                     .input_types = {DType::kFloat32, DType::kInt64},
                     .table_rows = {0, 7},
                     .max_bad_rows = 2,
                     .hash_ids = true});
  return 0;
}
