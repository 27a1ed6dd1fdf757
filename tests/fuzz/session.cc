// A client's stream of frames, and calls between them, to a server that trains two elements asynchronously.
#include "tests/fuzz/script.h"
#include "tests/fuzz/server_script.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  fuzz::ServerPlayer player(0);
  player.MakeReady(fuzz::SmallJob(v1::MODE_ASYNC, 1));
  player.Play(fuzz::ParseText<fuzz::Script>(data, size));
  return 0;
}
