// The messages of ps/1 to ps/0, and of ps/0 to ps/1: the same script is played to both. The job needs norms.
#include "tests/fuzz/script.h"
#include "tests/fuzz/server_script.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  const auto script = fuzz::ParseText<fuzz::Script>(data, size);
  v1::CreateRequest create = fuzz::SmallJob(v1::MODE_SYNC, 2);
  (*create.mutable_job()->mutable_optimizer()->mutable_hyperparameters())["global_clipnorm"] = 1;
  for (const int index : {0, 1}) {
    fuzz::ServerPlayer player(index);
    player.MakeReady(create);
    player.Play(script);
  }
  return 0;
}
