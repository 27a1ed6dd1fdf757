// What chiefs and workers call: jobs, variables, memberships, amendments, to a server that has nothing yet.
#include "tests/fuzz/script.h"
#include "tests/fuzz/server_script.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  fuzz::ServerPlayer(0).Play(fuzz::ParseText<fuzz::Script>(data, size));
  return 0;
}
