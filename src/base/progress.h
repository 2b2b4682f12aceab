// Progress of long work, for people: on a terminal a bar with the remaining time, elsewhere a plain line now
// and then. Only commands use it; libraries report numbers through callbacks.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace sluice::base {

enum class ProgressStyle { kAuto, kBar, kLines };  // kAuto: a bar when the descriptor is a terminal

struct ProgressOptions {
  int descriptor = 2;  // the file for lines: stderr
  ProgressStyle style = ProgressStyle::kAuto;
  int64_t bar_interval_ns = 100'000'000;      // between redraws of the bar
  int64_t line_interval_ns = 10'000'000'000;  // between plain lines
};

// One piece of work of `total` units. Thread-safe. Prints a closing line when finished or destroyed, unless
// no unit was ever done.
class Progress {
 public:
  Progress(std::string label, int64_t total, ProgressOptions options = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(int64_t units);
  void set(int64_t done);  // absolute instead of relative
  void finish();

 private:
  void print_if_due(int64_t now_ns);
  void print(const std::string& line, const char* end) const;

  const std::string label_;
  const int64_t total_;
  const ProgressOptions options_;
  const std::chrono::steady_clock::time_point start_;
  bool bar_ = false;
  bool finished_ = false;
  int64_t done_ = 0;
  int64_t last_print_ns_ = 0;
  std::mutex mutex_;
};

// The time for the rest of `total` if it goes on at the speed so far: at most a century.
int64_t left_ns(int64_t done, int64_t total, int64_t elapsed_ns);

// "label  42% [====>     ] 1:23 left": the line on a terminal after `elapsed_ns`.
std::string progress_bar(const std::string& label, int64_t done, int64_t total, int64_t elapsed_ns);

// "label: 42 % after 10.00 s, 13.81 s left": the plain line elsewhere.
std::string progress_line(const std::string& label, int64_t done, int64_t total, int64_t elapsed_ns);

}  // namespace sluice::base
