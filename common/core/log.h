// Log lines on stderr: "I1120 07:46:00.123 worker/1] text". Results go to stdout and not through here.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace cairn {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Once, at the start of main. `task` ("worker/1") stands in every line. Thread-safe afterwards.
void StartLogging(const std::string& task, LogLevel level);

void Log(LogLevel level, const std::string& text);

template <typename... Args>
void LogInfo(const Args&... args) {
  Log(LogLevel::kInfo, absl::StrCat(args...));
}
template <typename... Args>
void LogWarning(const Args&... args) {
  Log(LogLevel::kWarning, absl::StrCat(args...));
}
template <typename... Args>
void LogError(const Args&... args) {
  Log(LogLevel::kError, absl::StrCat(args...));
}

}  // namespace cairn
