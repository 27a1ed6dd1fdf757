// Calls of chiefs and workers to a server without a job: jobs, variables, memberships, config changes.
#include "tests/fuzz/script.h"
#include "tests/fuzz/server_script.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  fuzz::ServerPlayer(0).Play(fuzz::ParseText<fuzz::Script>(data, size));
  return 0;
}
