// Log lines for people, on stderr and optionally in a file. Modules below `config` do not log; they throw or
// return.
#pragma once

#include <filesystem>
#include <string>

namespace sluice::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogOptions {
  std::filesystem::path file;               // empty: none; receives every level
  LogLevel stderr_level = LogLevel::kInfo;  // the lowest level that reaches stderr
  std::string name;  // precedes each line, e.g. "rank 3"; errors without a name say "sluice"
};

// Replaces the process's log. Thread-safe.
void configure_log(const LogOptions& options);

// Thread-safe; one line each. Errors are flushed at once.
void log(LogLevel level, const std::string& line);
inline void log_info(const std::string& line) { log(LogLevel::kInfo, line); }
inline void log_warning(const std::string& line) { log(LogLevel::kWarning, line); }
inline void log_error(const std::string& line) { log(LogLevel::kError, line); }

}  // namespace sluice::base
