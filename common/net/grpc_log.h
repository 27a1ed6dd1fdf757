// gRPC's own log.
#pragma once

namespace cairn::net {

// A line of it as a line of ours: debug, but where gRPC aborts the process, which must not go unsaid.
void LogGrpcLine(const char* line);

}  // namespace cairn::net
