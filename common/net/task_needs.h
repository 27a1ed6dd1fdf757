// How many file descriptors and threads a task needs, by the size of its cluster: for the check at start, for
// `cairn check` and for `cairn plan`.
#pragma once

#include <cstdint>

namespace cairn::net {

// Without a connection: libraries, logs, listeners, and what is kept back (DescriptorReserve).
inline constexpr int64_t kTaskDescriptors = 40;
// Of each end of a connection between a server and a worker: gRPC's socket, the data channel's socket, its
// eventfds, epoll, pidfd and pipes, and descriptors of shared memory.
inline constexpr int64_t kConnectionDescriptors = 12;
// Before any peer connects: those of gRPC, of signals, of data and checkpoints.
inline constexpr int kTaskThreads = 16;

constexpr int64_t ServerDescriptors(int workers) {
  return kTaskDescriptors + kConnectionDescriptors * workers;
}
constexpr int64_t WorkerDescriptors(int servers) {
  return kTaskDescriptors + kConnectionDescriptors * servers;
}

}  // namespace cairn::net
