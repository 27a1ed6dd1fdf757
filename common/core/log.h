// Log lines on stderr: "I1120 07:46:00.123 worker/1] text", or one JSON object each. Results go to stdout and
// not through here.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace cairn {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

enum class LogFormat { kText, kJson };

// Once, at the start of main. `task` ("worker/1") stands in every line. Thread-safe afterwards. Colors on a
// terminal, unless NO_COLOR is set in the environment (no-color.org).
void StartLogging(const std::string& task, LogLevel level, LogFormat format = LogFormat::kText);

// {"time":"2026-11-20T07:46:00.123Z","level":"warning","task":"worker/1","message":"text"} and a newline, of
// now.
std::string JsonLogLine(const std::string& task, LogLevel level, const std::string& text);

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
