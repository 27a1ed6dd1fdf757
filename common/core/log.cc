#include "common/core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/core/one_line.h"
#include "common/core/terminal.h"

namespace cairn {
namespace {

std::atomic<bool> disabled{false};

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

LogLevel FromSpdlog(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::debug:
      return LogLevel::kDebug;
    case spdlog::level::warn:
      return LogLevel::kWarning;
    case spdlog::level::err:
      return LogLevel::kError;
    default:
      return LogLevel::kInfo;
  }
}

// Takes the name of the task from the name of the logger.
class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::string line =
        JsonLogLine(std::string(message.logger_name.data(), message.logger_name.size()),
                    FromSpdlog(message.level), std::string(message.payload.data(), message.payload.size()));
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

}  // namespace

void StartLogging(const std::string& task, LogLevel level, LogFormat format) {
  auto logger =
      spdlog::stderr_color_mt(task, WantsColor() ? spdlog::color_mode::automatic : spdlog::color_mode::never);
  logger->set_pattern("%^%L%m%d %H:%M:%S.%e%$ %n] %v");
  if (format == LogFormat::kJson) logger->set_formatter(std::make_unique<JsonFormatter>());
  logger->set_level(ToSpdlog(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

void DisableLogging() {
  disabled = true;
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
  if (disabled) return;
  spdlog::logger* const logger = spdlog::default_logger_raw();
  if (!logger->should_log(ToSpdlog(level))) return;
  const std::string line = OneLine(text);
  logger->log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace cairn
