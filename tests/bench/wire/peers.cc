#include "tests/bench/wire/peers.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <future>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cairn/v1/session.pb.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/wire/frame.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/server_builder.h"
#include "tests/bench/wire/peer_service.h"

namespace cairn::bench {
namespace {

constexpr size_t kChunk = size_t{1} << 20;
constexpr size_t kPing = 64;

// The first message of a client of a bare socket.
struct Order {
  enum Kind : uint64_t { kPush, kPushKept, kPull, kPing };
  uint64_t kind;
  uint64_t bytes;
};

absl::Status Failed(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

bool SendAll(int fd, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(fd, data, std::min(bytes, kChunk), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

// Into data, or over and over into the same place.
bool ReceiveAll(int fd, char* data, size_t bytes, bool keep) {
  while (bytes > 0) {
    const ssize_t got = recv(fd, data, std::min(bytes, kChunk), 0);
    if (got <= 0) return false;
    if (keep) data += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

// At least so many bytes of `buffer`.
char* RoomIn(AlignedBuffer& buffer, size_t bytes) {
  const auto elements = static_cast<int64_t>((bytes + sizeof(float) - 1) / sizeof(float));
  if (buffer.size() < elements) buffer = AlignedBuffer(elements);
  return reinterpret_cast<char*>(buffer.data());
}

// Adds the received elements to `sum`, a chunk at a time.
bool ReceiveAndAdd(int fd, char* buffer, size_t bytes, AlignedBuffer& sum) {
  auto* to = reinterpret_cast<float*>(RoomIn(sum, bytes));
  while (bytes > 0) {
    const size_t chunk = std::min(bytes, kChunk / 4);
    if (!ReceiveAll(fd, buffer, chunk, true)) return false;
    const auto* from = reinterpret_cast<const float*>(buffer);
    for (size_t i = 0; i < chunk / sizeof(float); ++i) to[i] += from[i];
    to += chunk / sizeof(float);
    bytes -= chunk;
  }
  return true;
}

// As fast as a socket to this host itself gets: ours are tuned so as well.
void TuneTcp(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

void ServeSocket(int fd) {
  AlignedBuffer memory(static_cast<int64_t>(kChunk / sizeof(float))), sum, values;
  const absl::Span<char> buffer(reinterpret_cast<char*>(memory.data()), kChunk);
  Order order;
  while (ReceiveAll(fd, reinterpret_cast<char*>(&order), sizeof order, true)) {
    bool ok = true;
    if (order.kind == Order::kPush) {
      ok = ReceiveAll(fd, buffer.data(), order.bytes, false) && SendAll(fd, buffer.data(), 1);
    } else if (order.kind == Order::kPushKept) {
      ok = ReceiveAndAdd(fd, buffer.data(), order.bytes, sum) && SendAll(fd, buffer.data(), 1);
    } else if (order.kind == Order::kPull) {
      // From memory of its own, like a server that has values.
      ok = SendAll(fd, RoomIn(values, order.bytes), order.bytes);
    } else {
      ok = SendAll(fd, buffer.data(), kPing);
    }
    if (!ok) break;
  }
  close(fd);
}

void Listen(int listener) {
  for (;;) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) return;
    TuneTcp(fd);                            // a Unix socket refuses
    std::thread(ServeSocket, fd).detach();  // ends with the process
  }
}

socklen_t AbstractAddress(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// Does not return, except if it cannot listen; then it has reported nothing.
void Serve(const Forker& parent, const std::string& unix_name, const std::string& grpc_unix) {
  const int tcp = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const int local = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un unix_address;
  const socklen_t unix_length = AbstractAddress(unix_name, &unix_address);
  if (bind(tcp, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(tcp, 16) != 0 ||
      getsockname(tcp, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      bind(local, reinterpret_cast<sockaddr*>(&unix_address), unix_length) != 0 || listen(local, 16) != 0) {
    return;
  }
  std::thread(Listen, tcp).detach();
  std::thread(Listen, local).detach();

  const auto service = MakePeerService();
  grpc::ServerBuilder builder;
  net::ConfigureServer(builder, /*reuse_port=*/false);  // or the pings of our channels are too many for it
  builder.SetMaxReceiveMessageSize(-1);
  int grpc_port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &grpc_port);
  builder.AddListeningPort(grpc_unix, grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(service.get());
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return;
  parent.Report(absl::StrCat(ntohs(address.sin_port), " ", grpc_port));
  parent.ExitWhenItIsDone();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerProcess>> PeerProcess::Start() {
  std::unique_ptr<PeerProcess> peer(new PeerProcess);
  peer->unix_name_ = absl::StrCat("cairn-bench-", getpid());
  peer->grpc_unix_ = absl::StrCat("unix-abstract:cairn-bench-grpc-", getpid());
  CAIRN_ASSIGN_OR_RETURN(peer->process_, ForkedProcess::Start([&peer](const Forker& parent) {
                           Serve(parent, peer->unix_name_, peer->grpc_unix_);
                         }));
  const std::pair<std::string, std::string> ports = absl::StrSplit(peer->process_->told(), ' ');
  if (!absl::SimpleAtoi(ports.first, &peer->tcp_port_))
    return absl::InternalError("the peers reported no port");
  peer->grpc_tcp_ = absl::StrCat("127.0.0.1:", ports.second);
  return peer;
}

absl::StatusOr<std::unique_ptr<RawSocket>> RawSocket::Tcp(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return Failed("connect");
  TuneTcp(fd);
  return std::unique_ptr<RawSocket>(new RawSocket(fd));
}

absl::StatusOr<std::unique_ptr<RawSocket>> RawSocket::Unix(const std::string& abstract_name) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address;
  const socklen_t length = AbstractAddress(abstract_name, &address);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) return Failed("connect");
  return std::unique_ptr<RawSocket>(new RawSocket(fd));
}

RawSocket::~RawSocket() {
  close(fd_);
}

absl::Status RawSocket::Push(const char* data, size_t bytes) {
  return Push(Order::kPush, data, bytes);
}

absl::Status RawSocket::PushKept(const char* data, size_t bytes) {
  return Push(Order::kPushKept, data, bytes);
}

absl::Status RawSocket::Pull(char* data, size_t bytes) {
  return Pull(data, bytes, false);
}

absl::Status RawSocket::PullInto(char* data, size_t bytes) {
  return Pull(data, bytes, true);
}

absl::Status RawSocket::Push(uint64_t kind, const char* data, size_t bytes) {
  const Order order = {kind, bytes};
  char answer;
  if (!SendAll(fd_, reinterpret_cast<const char*>(&order), sizeof order) || !SendAll(fd_, data, bytes) ||
      !ReceiveAll(fd_, &answer, 1, true)) {
    return Failed("push");
  }
  return absl::OkStatus();
}

absl::Status RawSocket::Pull(char* data, size_t bytes, bool keep) {
  const Order order = {Order::kPull, bytes};
  if (!SendAll(fd_, reinterpret_cast<const char*>(&order), sizeof order) ||
      !ReceiveAll(fd_, data, bytes, keep)) {
    return Failed("pull");
  }
  return absl::OkStatus();
}

absl::Status RawSocket::Ping() {
  const Order order = {Order::kPing, 0};
  char answer[kPing];
  if (!SendAll(fd_, reinterpret_cast<const char*>(&order), sizeof order) ||
      !ReceiveAll(fd_, answer, kPing, true)) {
    return Failed("ping");
  }
  return absl::OkStatus();
}

BareStream::BareStream(const std::string& target)
    : stub_(net::MakeChannel(target, grpc::InsecureChannelCredentials())) {
  stream_ = stub_.PrepareCall(&context_, kStreamMethod, &queue_);
  stream_->StartCall(this);
  (void)Step();
}

BareStream::~BareStream() {
  context_.TryCancel();
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::Status BareStream::Step() {
  void* tag;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok ? absl::OkStatus() : absl::UnavailableError("the bare stream ended");
}

absl::Status BareStream::Write(const grpc::Slice& slice) {
  stream_->Write(grpc::ByteBuffer(&slice, 1), this);
  return Step();
}

absl::Status BareStream::Read(size_t* bytes) {
  grpc::ByteBuffer message;
  stream_->Read(&message, this);
  const absl::Status status = Step();
  *bytes = message.Length();
  return status;
}

absl::Status BareStream::Push(const char* data, size_t bytes) {
  absl::Status status;
  for (size_t at = 0; status.ok() && at < bytes; at += kChunk) {
    status = Write(grpc::Slice(data + at, std::min(kChunk, bytes - at), grpc::Slice::STATIC_SLICE));
  }
  if (status.ok()) status = Write(grpc::Slice("e", kEndBytes));
  size_t answer;
  if (status.ok()) status = Read(&answer);
  return status;
}

absl::Status BareStream::Pull(size_t bytes) {
  const uint64_t wanted = bytes;
  static_assert(sizeof wanted == kWantBytes);
  absl::Status status = Write(grpc::Slice(&wanted, sizeof wanted));
  for (size_t got = 0; status.ok() && got < bytes;) {
    size_t message;
    status = Read(&message);
    got += message;
  }
  return status;
}

namespace {

absl::Status Call(const std::shared_ptr<grpc::Channel>& channel, const char* method,
                  const v1::ClientFrame& request, v1::ServerFrame* response) {
  grpc::TemplatedGenericStub<v1::ClientFrame, v1::ServerFrame> stub(channel);
  grpc::ClientContext context;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, response,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  return net::FromGrpc(done.get_future().get());
}

}  // namespace

NaiveUnary::NaiveUnary(const std::string& target)
    : channel_([&target] {
        grpc::ChannelArguments arguments;
        arguments.SetMaxReceiveMessageSize(-1);
        return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
      }()) {}

absl::Status NaiveUnary::Push(const char* data, size_t bytes) {
  v1::ClientFrame request;
  request.mutable_payload()->assign(data, bytes);
  v1::ServerFrame response;
  return Call(channel_, kNaivePushMethod, request, &response);
}

absl::Status NaiveUnary::Pull(char* data, size_t bytes) {
  v1::ClientFrame request;
  request.mutable_header()->set_request_id(bytes);
  v1::ServerFrame response;
  const absl::Status status = Call(channel_, kNaivePullMethod, request, &response);
  std::memcpy(data, response.payload().data(), std::min(bytes, response.payload().size()));
  return status;
}

absl::Status NaiveUnary::Ping() {
  v1::ClientFrame request;
  request.mutable_header()->set_request_id(kPing);
  v1::ServerFrame response;
  return Call(channel_, kNaivePullMethod, request, &response);
}

}  // namespace cairn::bench
