#include "client/this_process.h"

#include <unistd.h>

#include <array>
#include <climits>

#include "common/system/entropy.h"

namespace cairn::client {

v1::Process DrawProcess() {
  v1::Process process;
  process.set_id(DrawRandomBits());
  std::array<char, HOST_NAME_MAX + 1> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) process.set_host(host.data());
  process.set_pid(getpid());
  return process;
}

}  // namespace cairn::client
