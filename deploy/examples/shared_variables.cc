// Two variables on a parameter server, shared by several programs: the smallest example of Cairn's C++ library.
//
//   cairn-ps --ps_hosts localhost:2222 --job_name ps --task_index 0 &
//   shared_variables localhost:2222            prints "a * b = 12"
//   shared_variables localhost:2222 a 10       sets a to 10 and prints "a * b = 40"
//
// The first program creates the variables a = 3 and b = 4; later programs use them.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cairn/variables.h"

namespace {

using cairn::Status;
using cairn::Variables;

Status CreateUnlessThere(Variables& variables, const std::string& name, float value) {
  const Status status = variables.Create(name, {}, {&value, 1});
  return status.code() == cairn::StatusCode::kAlreadyExists ? Status() : status;
}

Status Run(const std::string& server, const std::string& name, float value) {
  std::unique_ptr<Variables> variables;
  Status status =
      Variables::Open({.servers = {server}, .connect_timeout = std::chrono::seconds(10)}, &variables);
  if (status.ok()) status = CreateUnlessThere(*variables, "a", 3.0f);
  if (status.ok()) status = CreateUnlessThere(*variables, "b", 4.0f);
  if (status.ok() && !name.empty()) status = variables->Write(name, {&value, 1});

  std::vector<float> a, b;
  if (status.ok()) status = variables->Read("a", &a);
  if (status.ok()) status = variables->Read("b", &b);
  if (status.ok()) std::printf("a * b = %g\n", a[0] * b[0]);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    std::fprintf(stderr, "usage: shared_variables HOST:PORT [NAME VALUE]\n");
    return 2;
  }
  const Status status =
      argc == 4 ? Run(argv[1], argv[2], std::strtof(argv[3], nullptr)) : Run(argv[1], "", 0);
  if (!status.ok()) std::fprintf(stderr, "shared_variables: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
