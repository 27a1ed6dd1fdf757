// A client's stream of frames, and calls between them, to a server that trains two elements and a table of rows
// asynchronously.
#include "tests/fuzz/script.h"
#include "tests/fuzz/server_script.h"
#include "tests/unit/ps/counting_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  const ps::CountingTables tables;
  fuzz::ServerPlayer player(0, /*host_index=*/-1, &tables);
  v1::CreateRequest create = fuzz::SmallJob(v1::MODE_ASYNC, 1);
  v1::Table& table = *create.mutable_job()->add_tables();
  table.set_name("t");
  table.set_kind("counting");
  table.set_row_elements(2);
  player.MakeReady(create);
  player.Play(fuzz::ParseText<fuzz::Script>(data, size));
  return 0;
}
