// Two variables on a parameter server, shared by several programs: the smallest example of Cairn's client
// library.
//
//   cairn-ps --ps_hosts localhost:2222 --job_name ps --task_index 0 &
//   shared_variables localhost:2222            prints "a * b = 12"
//   shared_variables localhost:2222 a 10       sets a to 10 and prints "a * b = 40"
//
// The first program creates the variables a = 3 and b = 4; later programs use them.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/client.h"
#include "common/core/status.h"

namespace {

using cairn::Shape;
using cairn::client::Client;

absl::Status CreateUnlessThere(Client& client, const std::string& name, float value) {
  const absl::Status status = client.Create(name, Shape({}), {value});
  return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
}

absl::Status Run(const std::string& server, const std::string& name, float value) {
  CAIRN_ASSIGN_OR_RETURN(
      auto client,
      Client::Connect({server}, {.task = "shared_variables", .connect_timeout = std::chrono::seconds(10)}));
  CAIRN_RETURN_IF_ERROR(CreateUnlessThere(*client, "a", 3.0f));
  CAIRN_RETURN_IF_ERROR(CreateUnlessThere(*client, "b", 4.0f));
  if (!name.empty()) CAIRN_RETURN_IF_ERROR(client->Write(name, {value}));

  CAIRN_ASSIGN_OR_RETURN(const std::vector<float> a, client->Read("a"));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<float> b, client->Read("b"));
  std::printf("a * b = %g\n", a[0] * b[0]);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::fprintf(stderr, "usage: shared_variables HOST:PORT [NAME VALUE]\n");
    return static_cast<int>(cairn::ExitCode::kUsage);
  }
  const absl::Status status =
      argc == 4 ? Run(argv[1], argv[2], std::strtof(argv[3], nullptr)) : Run(argv[1], "", 0);
  if (!status.ok()) std::fprintf(stderr, "shared_variables: %s\n", std::string(status.message()).c_str());
  return static_cast<int>(cairn::ExitCodeOf(status));
}
