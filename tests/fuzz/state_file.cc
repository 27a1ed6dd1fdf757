// A checkpoint's state.json: as given, and with a correct checksum, which a fuzzer cannot guess.
#include "worker/checkpoint/state_file.h"

#include <string>

#include "absl/strings/str_format.h"
#include "tests/fuzz/fuzz.h"
#include "worker/checkpoint/file_io.h"

namespace cairn {
namespace {

void Read(const std::string& text) {
  const auto state = worker::ParseStateFile(text);
  if (!state.ok()) return;
  const auto again = worker::ToText(*state);
  FUZZ_CHECK(again.ok());
  const auto same = worker::ParseStateFile(*again);
  FUZZ_CHECK(same.ok() && same->run == state->run && same->files.size() == state->files.size());
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  const std::string body(fuzz::TextOf(data, size));
  Read(body);
  Read(absl::StrFormat("%s,\n \"crc32\": \"%08x\"\n}\n", body, worker::Crc32(0, body)));
  return 0;
}
