#include "base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/stderr_lines.h"
#include "base/text.h"

namespace sluice::base {

namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

// stderr that is not a terminal. If its reader does not take a line within 2 s the line is dropped and
// counted. After a drop, lines are tried without waiting until the reader has made room again.
class UnattendedStderr final : public spdlog::sinks::base_sink<std::mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    constexpr int64_t kPatienceNs = 2'000'000'000;
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (left_out_ > 0 &&
        !say_on_stderr(text("(", left_out_, " lines were left out here: nobody read them)\n"), 0)) {
      ++left_out_;
      return;
    }
    left_out_ = say_on_stderr({line.data(), line.size()}, kPatienceNs) ? 0 : 1;
  }
  void flush_() override {}

  int64_t left_out_ = 0;
};

spdlog::sink_ptr console_sink() {
  if (::isatty(STDERR_FILENO) == 1) return std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  return std::make_shared<UnattendedStderr>();
}

}  // namespace

void configure_log(const LogOptions& options) {
  const spdlog::sink_ptr console = console_sink();
  console->set_level(spdlog_level(options.stderr_level));
  console->set_pattern(options.name.empty() ? "%^%v%$" : "[%n] %^%v%$");
  std::vector<spdlog::sink_ptr> sinks{console};
  if (!options.file.empty()) {
    try {
      auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file.string());
      file->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
      sinks.push_back(file);
    } catch (const std::exception& error) {  // spdlog's, whose type the planner's wheel has not
      throw RunError(text("cannot write ", options.file.string(), ": ", error.what()));
    }
  }
  auto logger = std::make_shared<spdlog::logger>(options.name, sinks.begin(), sinks.end());
  logger->set_level(spdlog::level::debug);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
}

void log(LogLevel level, const std::string& line) {
  spdlog::logger& logger = *spdlog::default_logger();
  const bool is_bare = level == LogLevel::kError && logger.name().empty();
  logger.log(spdlog_level(level), printable(is_bare ? "sluice: " + line : line));
}

}  // namespace sluice::base
