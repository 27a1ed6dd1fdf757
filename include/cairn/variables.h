// Named variables on parameter servers, shared by any number of programs.
//
//   std::unique_ptr<cairn::Variables> variables;
//   cairn::Status status = cairn::Variables::Open({.servers = {"ps0:2222", "ps1:2222"}}, &variables);
//   if (status.ok()) status = variables->Create("a", {2}, {{1.0f, 2.0f}});
//   std::vector<float> a;
//   if (status.ok()) status = variables->Read("a", &a);
//
// Works with servers that only store variables, and with servers that train a model: their variables can be
// listed, read and overwritten, but not created. To train, use Session.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cairn/connect.h"
#include "cairn/export.h"
#include "cairn/status.h"

namespace cairn {

struct ListedVariable {
  std::string name;
  std::vector<int64_t> shape;  // empty: a scalar
  std::vector<int> servers;    // indices of the servers that store its rows, in the order of the rows
};

// Thread-safe. Every call blocks until the servers have answered, at most for 30 s plus the time to transfer
// the values at a low rate; kUnavailable or kDeadlineExceeded names the server that does not answer. After an
// error, output arguments are unchanged.
class CAIRN_EXPORT Variables {
 public:
  // Waits until every server is reached, at most for options.connect_timeout. kInvalidArgument for an empty
  // list of servers or for files that contain no valid certificate; kUnavailable names the servers that were
  // not reached.
  static Status Open(const ConnectOptions& options, std::unique_ptr<Variables>* variables);
  ~Variables();
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  // All variables on the servers, sorted by name.
  Status List(std::vector<ListedVariable>* listed);
  // Creates a variable of float32 on the server that stores the fewest elements. `values`: row-major, one for
  // each element of `shape`, at most 65,536. kAlreadyExists if a variable of this name exists;
  // kFailedPrecondition if the servers train a model.
  Status Create(const std::string& name, const std::vector<int64_t>& shape, std::span<const float> values);
  // Sets `values` to the current values, row-major. kNotFound if there is no such variable.
  Status Read(const std::string& name, std::vector<float>* values);
  // Replaces all values; a reader sees the old or the new values of each server, never a mixture.
  // kInvalidArgument if the number of values is not that of the variable's elements.
  Status Write(const std::string& name, std::span<const float> values);

 private:
  class Impl;
  explicit Variables(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
