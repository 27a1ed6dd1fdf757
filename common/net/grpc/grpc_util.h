// Settings of gRPC channels that clients and servers must agree on, and conversions of statuses.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/status.h"

namespace cairn::net {

// Incremented when the meaning of a frame or a call changes.
inline constexpr int kProtocolVersion = 13;

// Call metadata: the index of the server whose shard the call is for, if it is not the called server's own
// shard (parameter_server.proto).
inline constexpr char kShardMetadata[] = "cairn-shard";

// Call metadata: the job token (access.h).
inline constexpr char kTokenMetadata[] = "cairn-job-token";

// The credentials of a channel: the TLS credentials, if any, and the job token that each call carries; empty:
// no token.
struct Credentials {
  Credentials(std::shared_ptr<grpc::ChannelCredentials> channel_in, std::string token_in = "")
      : channel(std::move(channel_in)), token(std::move(token_in)) {}
  std::shared_ptr<grpc::ChannelCredentials> channel;
  std::string token;
};

absl::Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

// A channel that detects a dead peer within 30 s, resolves names again and reconnects within 2 s of a
// server's return, and is not shared with other channels to the same address. Does not block.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Credentials& credentials);

// The server's side of the same settings. `reuse_port`: another socket may be bound to the port too.
void ConfigureServer(grpc::ServerBuilder& builder, bool reuse_port);

void SetDeadline(grpc::ClientContext& context, std::chrono::milliseconds timeout);

// Turns gRPC's own log lines into debug lines of Cairn's log; errors that matter are also returned as a
// status. Call it at the start of main.
void QuietGrpc();

// By default, glibc's malloc returns large blocks to the system at once, and gRPC allocates them again for
// each message, so that page faults cost more than the copy. This keeps the blocks. Call it at the start of
// main.
void TuneMalloc();

}  // namespace cairn::net
