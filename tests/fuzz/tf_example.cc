// tf.Examples in sound records. The text between two of them is "\n--\n".
#include "data/tf_record/tf_example.h"

#include <limits>

#include "absl/strings/str_split.h"
#include "tests/fuzz/data.h"
#include "tests/fuzz/tf_record.h"

namespace {

constexpr char kBetweenExamples[] = "\n--\n";

void ReadFeatures(absl::Span<const uint8_t> example) {
  using namespace cairn;
  const auto features = data::ParseExample(example);
  if (!features.ok()) {
    FUZZ_CHECK(!features.status().message().empty());
    return;
  }
  for (const data::NamedFeature& named : *features) {
    static_cast<void>(data::OneInteger(named.feature));
    const auto count = data::CountValues(named.feature);
    if (!count.ok()) continue;
    FUZZ_CHECK(*count >= 0 && *count <= static_cast<int64_t>(example.size()));
    std::vector<float> values(static_cast<size_t>(*count), std::numeric_limits<float>::quiet_NaN());
    data::ReadValues(named.feature, absl::MakeSpan(values));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  static const fuzz::ScratchFolder folder;
  std::string file;
  for (const absl::string_view example : absl::StrSplit(fuzz::TextOf(data, size), kBetweenExamples)) {
    ReadFeatures({reinterpret_cast<const uint8_t*>(example.data()), example.size()});
    file += fuzz::RecordOf(example);
  }
  const std::string path = folder.Write("x.tfrecord", file);
  fuzz::LoadAndRead({.path = path});
  fuzz::LoadAndRead({.path = path, .label_column = "y", .feature_columns = {"x"}, .max_bad_rows = 2});
  fuzz::LoadAndRead({.path = path,
                     .input_names = {"x", "w"},
                     .input_shapes = {{1}, {1}},
                     .input_types = {DType::kInt64, DType::kFloat32},
                     .ragged_inputs = {true, true},
                     .weights_of = {-1, 0},
                     .max_bad_rows = 2});
  return 0;
}
