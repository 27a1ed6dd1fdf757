#include "common/net/grpc/grpc_log.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/log.h"

namespace cairn::net {

void LogGrpcLine(const char* line) {
  const bool aborts = absl::StartsWith(line, "assertion failed");
  Log(aborts ? LogLevel::kError : LogLevel::kDebug, absl::StrCat("grpc: ", line));
}

}  // namespace cairn::net
