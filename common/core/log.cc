#include "common/core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cairn {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

const char* NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "info";
}

// Set by StartLogging() before there are other threads; the logger's name is the task.
LogFormat chosen_format = LogFormat::kText;

}  // namespace

void StartLogging(const std::string& task, LogLevel level, LogFormat format) {
  const char* const no_color = std::getenv("NO_COLOR");
  auto logger = spdlog::stderr_color_mt(
      task, no_color != nullptr && *no_color != '\0' ? spdlog::color_mode::never : spdlog::color_mode::automatic);
  logger->set_pattern(format == LogFormat::kJson ? "%v" : "%^%L%m%d %H:%M:%S.%e%$ %n] %v");
  chosen_format = format;
  logger->set_level(ToSpdlog(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

std::string JsonLogLine(const std::string& task, LogLevel level, const std::string& text) {
  const nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone())},
      {"level", NameOf(level)},
      {"task", task},
      {"message", text}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void Log(LogLevel level, const std::string& text) {
  spdlog::logger& logger = *spdlog::default_logger_raw();
  if (!logger.should_log(ToSpdlog(level))) return;
  std::string line = text;
  if (chosen_format == LogFormat::kJson) {
    line = JsonLogLine(logger.name(), level, text);
    line.pop_back();  // spdlog adds a newline
  }
  logger.log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace cairn
