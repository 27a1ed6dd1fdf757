#include "common/net/cluster/host_port.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/one_line.h"

namespace cairn::net {
namespace {

// The shortest form of an IPv6 address, possibly with a zone ("fe80::1%eth0").
std::optional<std::string> CanonicalIpv6(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('%', 1));
  in6_addr address;
  if (inet_pton(AF_INET6, std::string(parts.first).c_str(), &address) != 1) return std::nullopt;
  char canonical[INET6_ADDRSTRLEN];
  inet_ntop(AF_INET6, &address, canonical, sizeof(canonical));
  return parts.second.empty() ? std::string(canonical) : absl::StrCat(canonical, "%", parts.second);
}

bool IsHostCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::StrContains("-._", absl::string_view(&c, 1));
}

bool LooksLikeIpv4(absl::string_view host) {
  return std::all_of(host.begin(), host.end(), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

bool IsIpv4(const std::string& host) {
  in_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

}  // namespace

absl::StatusOr<HostPort> HostPort::Parse(absl::string_view text) {
  const std::string quoted = Quoted(text);
  const auto refuse = [&](const auto&... reason) {
    return absl::InvalidArgumentError(absl::StrCat(quoted, reason...));
  };
  if (text.empty()) return refuse(" is not an address; write host:port, as in \"localhost:2222\"");
  if (absl::StrContains(text, ',')) return refuse(" holds a comma: one address per entry");
  if (const size_t scheme = text.find("://"); scheme != absl::string_view::npos) {
    return refuse(" has a scheme; leave out \"", text.substr(0, scheme + 3), "\"");
  }

  HostPort result;
  absl::string_view port;
  if (text[0] == '[') {
    const size_t end = text.find(']');
    if (end == absl::string_view::npos) return refuse(" has no closing bracket");
    const auto address = CanonicalIpv6(text.substr(1, end - 1));
    if (!address) return refuse(" has no IPv6 address between its brackets");
    result.host = *address;
    port = text.substr(end + 1);
    if (port.empty()) return refuse(" has no port; write [address]:port, as in \"[::1]:2222\"");
    if (port[0] != ':') return refuse(" needs a ':' after the bracket, as in \"[::1]:2222\"");
    port.remove_prefix(1);
  } else {
    const size_t colons = static_cast<size_t>(std::count(text.begin(), text.end(), ':'));
    if (colons == 0) return refuse(" has no port; write host:port, as in \"", text, ":2222\"");
    if (colons > 1) {
      return refuse(" has ", colons, " colons; an IPv6 address needs brackets, as in \"[::1]:2222\"");
    }
    const size_t colon = text.find(':');
    result.host = absl::AsciiStrToLower(text.substr(0, colon));
    port = text.substr(colon + 1);
    if (result.host.empty()) return refuse(" has no host before the port");
    for (char c : result.host) {
      if (!IsHostCharacter(c))
        return refuse(": a host cannot contain '", absl::CHexEscape(absl::string_view(&c, 1)), "'");
    }
    if (result.host.size() > 253) return refuse(": a host has at most 253 characters");
    if (LooksLikeIpv4(result.host) && !IsIpv4(result.host)) {
      return refuse(": ", result.host, " is not an IPv4 address");
    }
  }

  if (port.empty()) return refuse(" has no port after the ':'");
  const bool digits = std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) return refuse(": the port must be a number");
  if (port.size() > 5 || !absl::SimpleAtoi(port, &result.port) || result.port < 1 || result.port > 65535) {
    return refuse(": the port must be 1 to 65535");
  }
  return result;
}

std::string HostPort::ToString() const {
  const bool ipv6 = absl::StrContains(host, ':');
  return ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace cairn::net
