// The transports to which Cairn's are compared, between this process and another: bare sockets, a bare gRPC
// stream, and a simple unary call with protobuf's `bytes`. Memory is also measured, in this process alone.
//
// The other end of sockets and streams discards the data, so these are upper limits. The other end of the
// unary call sums the data, as a server of such a call would; so do bare sockets with PushKept().
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/bench/wire/forked_process.h"

namespace cairn::bench {

// The other process. Ends with this object, or with this process.
class PeerProcess {
 public:
  // As ForkedProcess::Start.
  static absl::StatusOr<std::unique_ptr<PeerProcess>> Start();

  pid_t pid() const { return process_->pid(); }
  int tcp_port() const { return tcp_port_; }
  const std::string& unix_name() const { return unix_name_; }  // abstract
  const std::string& grpc_tcp() const { return grpc_tcp_; }    // targets for channels
  const std::string& grpc_unix() const { return grpc_unix_; }

 private:
  PeerProcess() = default;
  std::unique_ptr<ForkedProcess> process_;
  int tcp_port_ = 0;
  std::string unix_name_, grpc_tcp_, grpc_unix_;
};

// One connected stream socket.
class RawSocket {
 public:
  static absl::StatusOr<std::unique_ptr<RawSocket>> Tcp(int port);
  static absl::StatusOr<std::unique_ptr<RawSocket>> Unix(const std::string& abstract_name);
  ~RawSocket();
  absl::Status Push(const char* data, size_t bytes);
  absl::Status Pull(char* data, size_t bytes);
  // The same, but the data is kept: PushKept() adds it to a sum of as many floats, PullInto() stores it in
  // `data`.
  absl::Status PushKept(const char* data, size_t bytes);
  absl::Status PullInto(char* data, size_t bytes);
  absl::Status Ping();

 private:
  absl::Status Push(uint64_t kind, const char* data, size_t bytes);
  absl::Status Pull(char* data, size_t bytes, bool keep);
  explicit RawSocket(int fd) : fd_(fd) {}
  const int fd_;
};

// Messages of raw bytes on one open stream, in chunks of 1 MiB that refer to the caller's memory.
class BareStream {
 public:
  explicit BareStream(const std::string& target);
  ~BareStream();
  absl::Status Push(const char* data, size_t bytes);
  // Received data is discarded.
  absl::Status Pull(size_t bytes);

 private:
  absl::Status Step();  // waits for what was started
  absl::Status Write(const grpc::Slice& slice);
  absl::Status Read(size_t* bytes);

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

// One unary call for all bytes, as a protobuf field.
class NaiveUnary {
 public:
  explicit NaiveUnary(const std::string& target);
  absl::Status Push(const char* data, size_t bytes);
  absl::Status Pull(char* data, size_t bytes);
  absl::Status Ping();

 private:
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace cairn::bench
