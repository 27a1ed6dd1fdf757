#include "common/net/data_channel/socket/round_trip.h"

#include <linux/tcp.h>  // the C library's header lacks tcpi_min_rtt
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace cairn::net {

std::chrono::microseconds LeastRoundTrip(const FileDescriptor& socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  if (length < offsetof(tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt) return {};
  if (info.tcpi_min_rtt == ~__u32{0}) return {};  // nothing measured yet
  return std::chrono::microseconds(info.tcpi_min_rtt);
}

}  // namespace cairn::net
