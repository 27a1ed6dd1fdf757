#include "common/core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

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

}  // namespace

void StartLogging(const std::string& task, LogLevel level) {
  auto logger = spdlog::stderr_color_mt(task);
  logger->set_pattern("%^%L%m%d %H:%M:%S.%e%$ %n] %v");
  logger->set_level(ToSpdlog(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

void Log(LogLevel level, const std::string& text) {
  spdlog::default_logger_raw()->log(ToSpdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace cairn
