// A TFRecord file, plain or gzip'd: the framing. Target tf_example reads the contents of intact records.
#include "tests/fuzz/tf_record.h"

#include "tests/fuzz/data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  static const fuzz::ScratchFolder folder;
  data::TfRecordReader reader({data, size});
  for (size_t records = 0;; ++records) {
    FUZZ_CHECK(records <= size);  // each takes at least a byte
    const auto record = reader.Next();
    if (record.ok() ? !record->has_value() : absl::IsDataLoss(record.status())) break;
    if (!record.ok()) continue;
    FUZZ_CHECK((*record)->data() >= data && (*record)->data() + (*record)->size() <= data + size);
  }
  const std::string path = folder.Write("x.tfrecord", fuzz::TextOf(data, size));
  fuzz::LoadAndRead({.path = path});
  fuzz::LoadAndRead({.path = path, .max_bad_rows = 2});
  return 0;
}
