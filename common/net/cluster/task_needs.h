// The number of file descriptors and threads that a task needs in a cluster of a given size. The check at
// start, `cairn check` and `cairn plan` use it.
#pragma once

#include <cstdint>

namespace cairn::net {

// Descriptors of a task without connections: libraries, logs, listeners and the reserve (DescriptorReserve).
inline constexpr int64_t kTaskDescriptors = 40;
// Descriptors at each end of a connection between a server and a worker: gRPC's socket, the data channel's
// socket, its eventfds, epoll, pidfd and pipes, and descriptors of shared memory.
inline constexpr int64_t kConnectionDescriptors = 12;
// Threads of a task before any peer connects: those of gRPC, signals, data and checkpoints.
inline constexpr int kTaskThreads = 16;
// Threads at each end of a connection between a server and a worker: the data channel's and gRPC's.
inline constexpr int kConnectionThreads = 2;

constexpr int64_t ServerDescriptors(int workers) {
  return kTaskDescriptors + kConnectionDescriptors * workers;
}
constexpr int64_t WorkerDescriptors(int servers) {
  return kTaskDescriptors + kConnectionDescriptors * servers;
}

}  // namespace cairn::net
