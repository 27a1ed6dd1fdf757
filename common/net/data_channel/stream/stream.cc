#include "common/net/data_channel/stream/stream.h"

#include "common/core/status.h"
#include "common/net/data_channel/stream/farewell.h"

namespace cairn::net {

DataStream::DataStream(FileDescriptor socket, bool server, bool shared, const Options& options,
                       DataReceiver& user)
    : options_(options),
      server_(server),
      user_(user),
      socket_(std::move(socket)),
      handshake_(socket_, shared, options_),
      sender_(socket_, options_, wake_),
      receiver_(socket_, server, options_, user, sender_),
      loop_({.socket = socket_,
             .options = options_,
             .wake = wake_,
             .sender = sender_,
             .receiver = receiver_,
             .user = user},
            server) {}

absl::StatusOr<std::unique_ptr<DataStream>> DataStream::Connect(FileDescriptor socket, bool shared,
                                                                const Options& options,
                                                                DataReceiver& receiver) {
  std::unique_ptr<DataStream> stream(
      new DataStream(std::move(socket), /*server=*/false, shared, options, receiver));
  CAIRN_RETURN_IF_ERROR(stream->loop_.Open());
  CAIRN_RETURN_IF_ERROR(stream->Begin(stream->handshake_.Request()));
  return stream;
}

absl::StatusOr<std::unique_ptr<DataStream>> DataStream::Accept(FileDescriptor socket, bool shared,
                                                               const Options& options,
                                                               DataReceiver& receiver) {
  std::unique_ptr<DataStream> stream(
      new DataStream(std::move(socket), /*server=*/true, shared, options, receiver));
  CAIRN_RETURN_IF_ERROR(stream->loop_.Open());
  return stream;
}

DataStream::~DataStream() {
  Close();
}

absl::Status DataStream::Start() {
  CAIRN_ASSIGN_OR_RETURN(thread_, Thread::Start("data-stream", [this] { Run(); }));
  return absl::OkStatus();
}

void DataStream::Allow(uint64_t bytes) {
  CAIRN_CHECK(server_);
  sender_.GrantCredit(bytes, receiver_.payload_bytes());
}

void DataStream::Abort() {
  sender_.Close();
  loop_.Close();
}

void DataStream::Close() {
  Abort();
  thread_.Join();
}

absl::Status DataStream::Begin(absl::StatusOr<StreamTerms> terms) {
  CAIRN_ASSIGN_OR_RETURN(terms_, std::move(terms));
  if (terms_.rings != nullptr) CAIRN_RETURN_IF_ERROR(loop_.WatchRing(terms_.ring_wake));
  receiver_.Begin(terms_);
  sender_.Begin(terms_, server_);
  return absl::OkStatus();
}

void DataStream::Run() {
  absl::Status status = server_ ? Begin(handshake_.Answer(user_)) : absl::OkStatus();
  if (status.ok()) status = loop_.Run();
  user_.OnEnd(End(std::move(status)));
  ended_ = true;
}

absl::Status DataStream::End(absl::Status why) {
  loop_.TakeOver();
  // A client that cannot send may still receive the server's reason.
  receiver_.set_unread();
  for (absl::Status received; !server_ && absl::IsUnavailable(why) && received.ok() && receiver_.unread();) {
    received = receiver_.Receive(1);
    if (!received.ok()) why = received;
  }
  const bool between_messages = sender_.AwaitPause();
  if (between_messages && !loop_.closing()) SendFarewell(socket_, why, wake_, loop_.closing());
  ShutDown(socket_, sender_.AnyBorrowed());
  if (loop_.closing()) why = absl::CancelledError("the stream was closed");
  sender_.Clear();
  receiver_.Close();
  terms_.rings.reset();
  return why;
}

}  // namespace cairn::net
