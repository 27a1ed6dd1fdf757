// The result of a call: OK, or a code and a message that names what is wrong.
//
// The library throws no exception, with one exception to that rule: std::bad_alloc when memory is exhausted.
#pragma once

#include <string>
#include <utility>

#include "cairn/export.h"

namespace cairn {

// The codes of gRPC, with the same numbers. The comments say what a caller may do.
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,           // the program ended the wait: ConnectOptions::keep_waiting, Session::Cancel()
  kUnknown = 2,             // an error without a known code
  kInvalidArgument = 3,     // correct the argument that the message names
  kDeadlineExceeded = 4,    // no answer within the time limit
  kNotFound = 5,            // the named variable or file does not exist
  kAlreadyExists = 6,       // the named variable exists already
  kPermissionDenied = 7,    // the certificate does not allow the call
  kResourceExhausted = 8,   // not enough memory or disk space
  kFailedPrecondition = 9,  // the call does not fit the current state, or the servers' job is another one
  kAborted = 10,            // this worker or a server lost its state: Session::Recover()
  kOutOfRange = 11,         // training is over
  kUnimplemented = 12,      // the server does not know the call
  kInternal = 13,           // a fault of Cairn
  kUnavailable = 14,        // a server was unreachable for the whole time limit: the call may be repeated
  kDataLoss = 15,           // a file is damaged
  kUnauthenticated = 16,    // the job token is missing or wrong
};

class CAIRN_EXPORT [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  // Empty if ok(). Names the task, the variable and both values where they differ.
  const std::string& message() const { return message_; }
  // "OK", or the name of the code and the message: "NOT_FOUND: no variable 'c' on the servers".
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

}  // namespace cairn
