// The public client library: named variables on parameter servers.
//
//   auto client = cairn::client::Client::Connect({"ps0:2222", "ps1:2222"});
//   client->Create("a", Shape({}), {3.0f});
//   client->Write("a", {10.0f});
//   std::vector<float> a = *client->Read("a");
//
// Works with servers that train (reading and overwriting the model's variables) and with servers that only
// hold variables (Create). Calls block, each with a limit. Thread-safe. TrainingClient is its sister for
// workers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "common/net/access.h"
#include "worker/client/connection.h"
#include "worker/client/server_session.h"

namespace cairn::client {

struct ListedVariable {
  std::string name;
  Shape shape;
  std::vector<int> servers;  // that hold parts of it, in the order of its rows
};

class VariableReader;

class Client {
 public:
  // `servers`: "host:port" of every ps of the cluster, in the order of their task index. `access`:
  // certificates and the job token, where the servers want them; INVALID_ARGUMENT when the files do not make
  // a certificate.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::vector<std::string>& servers,
                                                         ConnectionOptions options = {},
                                                         const net::Access& access = {});
  // The same over any transport.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(std::vector<std::unique_ptr<ServerStub>> servers,
                                                         ConnectionOptions options = {});

  absl::StatusOr<std::vector<ListedVariable>> List();
  // The job that trains on the servers, as the first of them that has one describes it; nothing where they
  // only hold variables.
  absl::StatusOr<std::optional<v1::ConnectResponse>> Training();

  // A new variable of float32, whole on the server that holds least. `values` [shape.num_elements()], at most
  // 65,536. ALREADY_EXISTS when there is one of that name, FAILED_PRECONDITION when the servers train a
  // model.
  absl::Status Create(const std::string& name, const Shape& shape, absl::Span<const float> values);
  // Current values [num_elements]. NOT_FOUND when there is no such variable.
  absl::StatusOr<std::vector<float>> Read(const std::string& name);
  // For values that are read again and again. NOT_FOUND likewise. The client must outlive it.
  absl::StatusOr<std::unique_ptr<VariableReader>> OpenReader(const std::string& name);
  // Replaces all values, atomically on each server. INVALID_ARGUMENT when the number of values is not the
  // variable's.
  absl::Status Write(const std::string& name, absl::Span<const float> values);

 private:
  friend class VariableReader;
  explicit Client(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}

  struct Located {
    Shape shape;
    std::vector<net::Extent> extents;  // by rows; local_offset from the variable's start
    std::vector<uint64_t> layouts;     // [server]
  };
  absl::StatusOr<Located> Locate(const std::string& name);

  std::unique_ptr<Connection> connection_;
};

// Keeps the values of one variable, and streams to the servers that hold it: of what has not changed since it
// was last read, one small message comes. One thread at a time.
class VariableReader {
 public:
  // As of the last Refresh(), [shape().num_elements()].
  absl::Span<const float> values() const { return values_; }
  const Shape& shape() const { return located_.shape; }
  // Brings them up to date; true when something had changed. Errors as of Client::Read(): values() are then
  // neither the old ones nor the new ones.
  absl::StatusOr<bool> Refresh();

 private:
  friend class Client;
  VariableReader(Client& client, std::string name) : client_(client), name_(std::move(name)) {}
  absl::Status Locate();
  absl::Status RefreshOnce(bool* changed);

  Client& client_;
  const std::string name_;
  Client::Located located_;
  std::vector<float> values_;
  std::vector<uint64_t> editions_;                        // [extent] of values_; 0: not read yet
  std::vector<std::unique_ptr<ServerSession>> sessions_;  // [server]; null where there is none
};

}  // namespace cairn::client
