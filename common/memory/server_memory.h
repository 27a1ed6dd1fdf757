// The memory that a job takes on a server. Pure functions; any thread.
//
// With V bytes of values on this server, S optimizer slots and W workers:
//
//   needed = 2 V        the current values and the next version
//          + S V        the optimizer slots
//          + (W + 1) V  one gradient per worker, and one that is arriving
//          + (1 + S) V  a snapshot: a version that is still read, and its slots
//          + (3 + S) V  with replication: mean gradients on their way to the backup, and a complete state
//          + V          if values are encoded for the network: 16 bits per element of the current version and, for slow
//                       receivers, of the previous one
//
// The needs of tables beside the variables are added. With replication a job may take half of the memory: the other
// half is for the backup of another shard.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace cairn {

struct MemoryNeeds {
  double values = 0, slots = 0, gradients = 0, snapshot = 0, replication = 0, tables = 0;  // bytes
  double total() const { return values + slots + gradients + snapshot + replication + tables; }
};
MemoryNeeds MemoryNeedsOf(double value_bytes, int num_slots, int num_workers, bool replicated = false,
                          bool encoded = false);

// The job of which a server takes a part.
struct ServerMemory {
  MemoryNeeds needs;
  int64_t limit = 0;        // bytes, for the job
  std::string optimizer{};  // of the variables; empty: nothing is trained
  int num_slots = 0;        // of that optimizer
  int num_workers = 1;
  bool replicated = false;
  bool tables = false;  // the job has tables beside the variables
};
// RESOURCE_EXHAUSTED if the needs exceed the limit, naming the limit and each of the needs.
absl::Status CheckMemory(const ServerMemory& memory);

}  // namespace cairn
