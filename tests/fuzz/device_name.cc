// --device, as TensorFlow writes it.
#include "worker/devices/device_name.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  const auto name = worker::ParseDeviceName(fuzz::TextOf(data, size));
  if (!name.ok()) {
    FUZZ_CHECK(!name.status().message().empty());
    return 0;
  }
  FUZZ_CHECK(name->index.value_or(0) >= 0);
  FUZZ_CHECK(name->task.value_or(0) >= 0);
  // The printed name reads as the same name.
  const auto again = worker::ParseDeviceName(name->ToString());
  FUZZ_CHECK(again.ok() && *again == *name);
  // A name matches itself, and merging it with itself changes nothing.
  FUZZ_CHECK(worker::Matches(*name, *name));
  const auto merged = worker::MergeDeviceNames(*name, *name, false);
  FUZZ_CHECK(merged.ok() && *merged == *name);
  return 0;
}
