#include "base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/stderr_lines.h"
#include "base/text.h"

namespace sluice::base {

namespace {

constexpr int kBarColumns = 24;

int64_t percent(int64_t done, int64_t total) {
  if (total <= 0) return 100;
  return static_cast<int64_t>(static_cast<__int128>(std::min(done, total)) * 100 / total);
}

std::string minutes(int64_t nanoseconds) {
  const int64_t seconds = (nanoseconds + 999'999'999) / 1'000'000'000;
  return text(seconds / 60, ":", seconds % 60 < 10 ? "0" : "", seconds % 60);
}

}  // namespace

int64_t left_ns(int64_t done, int64_t total, int64_t elapsed_ns) {
  constexpr __int128 kCentury = __int128{100} * 8766 * 3600 * 1'000'000'000;
  if (done <= 0 || done >= total) return 0;
  return static_cast<int64_t>(std::min(static_cast<__int128>(elapsed_ns) * (total - done) / done, kCentury));
}

std::string progress_bar(const std::string& label, int64_t done, int64_t total, int64_t elapsed_ns) {
  const int64_t part = percent(done, total);
  const size_t filled = static_cast<size_t>(part * kBarColumns / 100);
  std::string bar(kBarColumns, ' ');
  bar.replace(0, filled, filled, '=');
  const std::string left = done <= 0 ? "" : text(" ", minutes(left_ns(done, total, elapsed_ns)), " left");
  return text(label, part < 10 ? "   " : part < 100 ? "  " : " ", part, "% [", bar, "]", left);
}

std::string progress_line(const std::string& label, int64_t done, int64_t total, int64_t elapsed_ns) {
  if (done >= total) return text(label, ": done in ", human_duration(elapsed_ns));
  return text(label, ": ", percent(done, total), " % after ", human_duration(elapsed_ns), ", ",
              human_duration(left_ns(done, total, elapsed_ns)), " left");
}

Progress::Progress(std::string label, int64_t total, ProgressOptions options)
    : label_(std::move(label)), total_(total), options_(options), start_(std::chrono::steady_clock::now()) {
  bar_ = options.style == ProgressStyle::kBar ||
         (options.style == ProgressStyle::kAuto && ::isatty(options.descriptor) == 1);
}

Progress::~Progress() { finish(); }

void Progress::advance(int64_t units) {
  const std::lock_guard lock(mutex_);
  done_ += units;
  print_if_due((std::chrono::steady_clock::now() - start_).count());
}

void Progress::set(int64_t done) {
  const std::lock_guard lock(mutex_);
  done_ = done;
  print_if_due((std::chrono::steady_clock::now() - start_).count());
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(finished_, true) || done_ == 0) return;
  const int64_t elapsed_ns = (std::chrono::steady_clock::now() - start_).count();
  print(text(bar_ ? "\r\033[K" : "", progress_line(label_, std::max(done_, total_), total_, elapsed_ns)),
        "\n");
}

void Progress::print_if_due(int64_t now_ns) {
  const int64_t interval_ns = bar_ ? options_.bar_interval_ns : options_.line_interval_ns;
  // finish() prints the closing line.
  if (finished_ || done_ >= total_ || now_ns - last_print_ns_ < interval_ns) return;
  last_print_ns_ = now_ns;
  if (bar_) {
    print(text("\r\033[K", progress_bar(label_, done_, total_, now_ns)), "");
  } else {
    print(progress_line(label_, done_, total_, now_ns), "\n");
  }
}

// A line that cannot be printed is lost, and the work continues.
void Progress::print(const std::string& line, const char* end) const {
  const std::string bytes = line + end;
  if (options_.descriptor == STDERR_FILENO) {
    say_on_stderr(bytes);
    return;
  }
  [[maybe_unused]] const ssize_t wrote = ::write(options_.descriptor, bytes.data(), bytes.size());
}

}  // namespace sluice::base
