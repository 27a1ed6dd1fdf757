#include "common/net/cluster/host_port.h"

#include <gtest/gtest.h>

namespace cairn::net {
namespace {

TEST(HostPort, ReadsEveryFormOfAnAddress) {
  const struct {
    const char* text;
    const char* host;
    int port;
    const char* printed;
  } kCases[] = {
      {"localhost:2222", "localhost", 2222, "localhost:2222"},
      {"10.0.0.1:1", "10.0.0.1", 1, "10.0.0.1:1"},
      {"job-ps-0.ns.svc:65535", "job-ps-0.ns.svc", 65535, "job-ps-0.ns.svc:65535"},
      {"Node_7:80", "node_7", 80, "node_7:80"},
      {"[::1]:2222", "::1", 2222, "[::1]:2222"},
      {"[0:0:0:0:0:0:0:1]:2222", "::1", 2222, "[::1]:2222"},
      {"[FE80::1%eth0]:2222", "fe80::1%eth0", 2222, "[fe80::1%eth0]:2222"},
      {"[::ffff:10.0.0.1]:2222", "::ffff:10.0.0.1", 2222, "[::ffff:10.0.0.1]:2222"},
  };
  for (const auto& test : kCases) {
    const auto address = HostPort::Parse(test.text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->host, test.host);
    EXPECT_EQ(address->port, test.port);
    EXPECT_EQ(address->ToString(), test.printed);
  }
}

TEST(HostPort, RefusesInvalidAddressesWithTheReason) {
  const struct {
    const char* text;
    const char* reason;
  } kCases[] = {
      {"", R"("" is not an address; write host:port, as in "localhost:2222")"},
      {"localhost", R"("localhost" has no port; write host:port, as in "localhost:2222")"},
      {"localhost:", R"("localhost:" has no port after the ':')"},
      {":2222", R"(":2222" has no host before the port)"},
      {"a:0", R"("a:0": the port must be 1 to 65535)"},
      {"a:65536", R"("a:65536": the port must be 1 to 65535)"},
      {"a:99999999999", R"("a:99999999999": the port must be 1 to 65535)"},
      {"a:-1", R"("a:-1": the port must be a number)"},
      {"a:http", R"("a:http": the port must be a number)"},
      {"a: 22", R"("a: 22": the port must be a number)"},
      {"a b:22", R"("a b:22": a host cannot contain ' ')"},
      {" a:22", R"(" a:22": a host cannot contain ' ')"},
      {"a/b:22", R"("a/b:22": a host cannot contain '/')"},
      {"a\nb:22", R"("a\nb:22": a host cannot contain '\n')"},
      {"a:1,b:2", R"("a:1,b:2" holds a comma: one address per entry)"},
      {"grpc://a:1", R"("grpc://a:1" has a scheme; leave out "grpc://")"},
      {"10.0.0.256:1", R"("10.0.0.256:1": 10.0.0.256 is not an IPv4 address)"},
      {"2222:1", R"("2222:1": 2222 is not an IPv4 address)"},
      {"::1:2222", R"("::1:2222" has 3 colons; an IPv6 address needs brackets, as in "[::1]:2222")"},
      {"fe80::1", R"("fe80::1" has 2 colons; an IPv6 address needs brackets, as in "[::1]:2222")"},
      {"[::1]", R"("[::1]" has no port; write [address]:port, as in "[::1]:2222")"},
      {"[::1]2222", R"("[::1]2222" needs a ':' after the bracket, as in "[::1]:2222")"},
      {"[::1:2222", R"("[::1:2222" has no closing bracket)"},
      {"[localhost]:2222", R"("[localhost]:2222" has no IPv6 address between its brackets)"},
  };
  for (const auto& test : kCases) {
    const auto status = HostPort::Parse(test.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), test.reason);
  }
}

}  // namespace
}  // namespace cairn::net
