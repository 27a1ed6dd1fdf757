// Logs to stderr: lines "I1120 07:46:00.123 worker/1] text", or one JSON object per message. Results of a
// program go to stdout, not through this log.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace cairn {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

enum class LogFormat { kText, kJson };

// Must be called once, at the start of main; afterwards logging is thread-safe. `task` ("worker/1") appears
// in every line. Lines are colored on a terminal unless NO_COLOR is set in the environment (no-color.org).
void StartLogging(const std::string& task, LogLevel level, LogFormat format = LogFormat::kText);

// For a library in another program: from now on, nothing is logged. Any thread.
void DisableLogging();

// {"time":"2026-11-20T07:46:00.123Z","level":"warning","task":"worker/1","message":"text"} with the current
// time, and a newline.
std::string JsonLogLine(const std::string& task, LogLevel level, const std::string& text);

// Logs `text` as one line: see OneLine().
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
