// A client of named variables on parameter servers.
//
//   auto client = cairn::client::Client::Connect({"ps0:2222", "ps1:2222"});
//   client->Create("a", Shape({}), {3.0f});
//   client->Write("a", {10.0f});
//   std::vector<float> a = *client->Read("a");
//
// Works with servers that train a model (reads and overwrites its variables) and with servers that only store
// variables (Create). Every call blocks, with a time limit. Thread-safe. Workers use TrainingClient instead.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/transport/connection.h"
#include "client/transport/server_session.h"
#include "common/core/shape.h"
#include "common/net/security/access.h"

namespace cairn::client {

struct ListedVariable {
  std::string name;
  Shape shape;
  std::vector<int> servers;  // the servers that store its rows, in the order of the rows
};

class VariableReader;

class Client {
 public:
  // `servers`: "host:port" of every ps of the cluster, in the order of the task index. `access`: certificates
  // and the job token, if the servers require them. INVALID_ARGUMENT if the files do not contain a valid
  // certificate.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::vector<std::string>& servers,
                                                         ConnectionOptions options = {},
                                                         const net::Access& access = {});
  // Connects over any transport.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(std::vector<std::unique_ptr<ServerStub>> servers,
                                                         ConnectionOptions options = {});

  // Uses an open connection.
  static std::unique_ptr<Client> Over(std::unique_ptr<Connection> connection) {
    return std::unique_ptr<Client>(new Client(std::move(connection)));
  }

  // All variables on the servers, sorted by name.
  absl::StatusOr<std::vector<ListedVariable>> List();
  // The job that the servers train, as described by the first server that has one; nullopt if they only store
  // variables.
  absl::StatusOr<std::optional<v1::ConnectResponse>> Training();

  // Creates a float32 variable, unsplit, on the server that stores the fewest elements. `values`:
  // [shape.num_elements()], at most 65,536. ALREADY_EXISTS if a variable of this name exists;
  // FAILED_PRECONDITION if the servers train a model.
  absl::Status Create(const std::string& name, const Shape& shape, absl::Span<const float> values);
  // Returns the current values, [num_elements]. NOT_FOUND if the variable does not exist.
  absl::StatusOr<std::vector<float>> Read(const std::string& name);
  // Opens a reader for values that are read repeatedly. NOT_FOUND if the variable does not exist. The client
  // must outlive the reader.
  absl::StatusOr<std::unique_ptr<VariableReader>> OpenReader(const std::string& name);
  // Replaces all values, atomically on each server. INVALID_ARGUMENT if `values` has the wrong length.
  absl::Status Write(const std::string& name, absl::Span<const float> values);

 private:
  friend class VariableReader;
  explicit Client(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}

  struct Located {
    Shape shape;
    std::vector<net::Extent> extents;  // in row order; local_offset: from the variable's start
    std::vector<uint64_t> layouts;     // [server]
  };
  absl::StatusOr<Located> Locate(const std::string& name);

  std::unique_ptr<Connection> connection_;
};

// Caches the values of one variable and keeps a stream to each of its servers. If the values on a server have
// not changed since the last read, the server answers with one small message. Used by one thread at a time.
class VariableReader {
 public:
  // The values as of the last Refresh(), [shape().num_elements()].
  absl::Span<const float> values() const { return values_; }
  const Shape& shape() const { return located_.shape; }
  // Updates values(). Returns true if any value has changed. Errors are those of Client::Read(); after an
  // error values() may mix old and new values.
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
  // [extent]: Done.edition of the last read of its values; 0: not read yet.
  std::vector<uint64_t> editions_;
  std::vector<std::unique_ptr<ServerSession>> sessions_;  // [server]; null: not connected
};

}  // namespace cairn::client
