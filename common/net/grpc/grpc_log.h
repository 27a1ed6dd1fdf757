// gRPC's own log.
#pragma once

namespace cairn::net {

// Writes a line of gRPC's log to our log: at error level if gRPC is about to abort, else at debug level.
void LogGrpcLine(const char* line);

}  // namespace cairn::net
