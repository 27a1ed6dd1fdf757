#include "common/memory/out_of_memory.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/memory_size.h"

namespace cairn {
namespace {

const char* program_name = "";
std::terminate_handler previous_handler = nullptr;

// The message for an exception that reports a lack of memory; empty for any other exception.
std::string TextOf(std::exception_ptr exception) {
  try {
    std::rethrow_exception(std::move(exception));
  } catch (const OutOfMemory& error) {
    return error.what();
  } catch (const std::bad_alloc&) {
    return "no memory";
  } catch (const std::length_error& error) {
    return absl::StrCat("no memory can hold that much (", error.what(), ")");
  } catch (...) {
    return "";
  }
}

[[noreturn]] void OnTerminate() {
  if (std::exception_ptr exception = std::current_exception(); exception != nullptr) {
    if (const std::string text = TextOf(std::move(exception)); !text.empty()) {
      std::fprintf(stderr, "%s: %s\n", program_name, text.c_str());
      std::_Exit(static_cast<int>(ExitCode::kFailure));
    }
  }
  if (previous_handler != nullptr) previous_handler();
  std::abort();
}

}  // namespace

OutOfMemory::OutOfMemory(int64_t floats, absl::string_view what)
    : floats_(floats),
      text_(absl::StrCat(what, what.empty() ? "" : ": ", "no memory for ",
                         InGiB(static_cast<double>(floats) * sizeof(float)))) {}

std::vector<float> FloatVector(int64_t count, absl::string_view what) {
  try {
    if (count < 0) throw std::length_error("negative");
    return std::vector<float>(static_cast<size_t>(count));
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(count, what);
  } catch (const std::length_error&) {
    throw OutOfMemory(count, what);
  }
}

namespace out_of_memory_internal {
absl::Status StatusOfCurrent(absl::string_view what) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", TextOf(std::current_exception())));
}
}  // namespace out_of_memory_internal

void ReportOutOfMemory(const char* program) {
  program_name = program;
  previous_handler = std::set_terminate(OnTerminate);
}

}  // namespace cairn
