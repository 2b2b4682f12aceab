#include "survive/run_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "transport/run_key.h"

namespace sluice::survive {

namespace fs = std::filesystem;
using base::text;

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kDraft = "draft-";
constexpr int64_t kOldFiles = 16;  // kept besides the current one: a file system may show an old listing

// The last line of a lock file. It has a fixed length, so that it can be changed in place.
std::string state_line(bool released, int64_t beats) {
  char line[32];
  std::snprintf(line, sizeof line, "%-8s %012lld\n", released ? "released" : "held",
                static_cast<long long>(beats));
  return line;
}

std::string first_word_of(const fs::path& path) {
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word;
}

// Two processes use the same process numbers if they share the kernel and the PID namespace.
std::string this_machine() {
  std::error_code unreadable;
  const fs::path names = fs::read_symlink("/proc/self/ns/pid", unreadable);
  return first_word_of("/proc/sys/kernel/random/boot_id") + " " + names.string();
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// The fields of a stat file below /proc, from the state on, which follows the name; empty if there is none.
std::vector<std::string> stat_fields(const std::string& path) {
  std::ifstream in(path);
  std::stringstream whole;
  whole << in.rdbuf();
  const std::string line = whole.str();
  const size_t name_end = line.rfind(')');  // the name before it may have any characters
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

// The start time of the process, in ticks since the machine started; 0 if the process has ended.
int64_t start_of(int64_t process) {
  constexpr size_t kStart = 19;
  const std::vector<std::string> fields = stat_fields(text("/proc/", process, "/stat"));
  if (fields.size() <= kStart || fields[0] == "Z" || fields[0] == "X") return 0;
  return base::parse_integer(fields[kStart]).value_or(0);
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return date;
}

// The contents of a lock file. A file that cannot be parsed still counts as held.
struct Holder {
  std::string contents;
  base::Json identity = base::Json::object();
  bool released = false;

  std::string name() const {
    return text("process ", identity.value("process", int64_t{0}), " on ",
                identity.value("host", "a machine"), " (", identity.value("command", "unknown"), ", since ",
                identity.value("since", "some time"), ")");
  }
};

Holder read_holder(const fs::path& path) {
  Holder holder;
  try {
    holder.contents = base::read_file(path);
  } catch (const base::Error&) {
    return holder;
  }
  const size_t line_end = holder.contents.find('\n');
  base::Json identity;
  base::read_json_text(holder.contents.substr(0, line_end), base::JsonDialect::kStrict, identity);
  const auto is = [&](const char* key, auto test) {
    return identity.contains(key) && (identity[key].*test)();
  };
  const bool whole = identity.is_object() && is("process", &base::Json::is_number_integer) &&
                     is("process_start", &base::Json::is_number_integer) &&
                     is("host", &base::Json::is_string) && is("machine", &base::Json::is_string) &&
                     is("command", &base::Json::is_string) && is("since", &base::Json::is_string);
  if (whole) holder.identity = identity;
  holder.released =
      line_end != std::string::npos && holder.contents.compare(line_end + 1, 8, "released") == 0;
  return holder;
}

// The numbers of the lock files, ascending.
std::vector<int64_t> numbers_in(const fs::path& folder) {
  std::vector<int64_t> numbers;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const auto number = base::parse_integer(entry.path().filename().string());
    if (number && *number > 0) numbers.push_back(*number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

int64_t newest_in(const fs::path& folder) {
  const std::vector<int64_t> numbers = numbers_in(folder);
  return numbers.empty() ? 0 : numbers.back();
}

// Overwrites the last bytes of the file with `bytes` and flushes them, so that other machines see them.
bool overwrite_end(const fs::path& path, const std::string& bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const off_t size = ::lseek(file, 0, SEEK_END);
  const auto length = static_cast<off_t>(bytes.size());
  const bool written = size >= length && ::pwrite(file, bytes.data(), bytes.size(), size - length) == length;
  const bool seen = ::fsync(file) == 0;
  return ::close(file) == 0 && written && seen;
}

[[noreturn]] void throw_held(const fs::path& directory, const Holder& holder) {
  throw base::RunError(text(directory.string(), " is being written by ", holder.name(),
                            ": wait for it to end, end it, or set another log.dir"));
}

}  // namespace

RunLock::RunLock(const fs::path& directory, RunLockOptions options)
    : folder_(directory / "lock"), options_(std::move(options)) {
  if (options_.machine.empty()) options_.machine = this_machine();
  const int64_t process = ::getpid();
  identity_ = base::Json{{"schema", "sluice.lock/1"},
                         {"host", host_name()},
                         {"machine", options_.machine},
                         {"process", process},
                         {"process_start", start_of(process)},
                         {"command", options_.command},
                         {"run", options_.run},
                         {"since", utc_now()},
                         {"nonce", transport::random_secret()}}
                  .dump(-1, ' ', true, base::Json::error_handler_t::replace) +
              "\n";
  base::make_directories(folder_);
  take();
  thread_ = std::thread([this] { keep(); });
}

RunLock::~RunLock() {
  release();
  if (thread_.joinable()) thread_.join();
}

fs::path RunLock::file(int64_t number) const { return folder_ / text(number); }

// Returns once this process has created the next file.
void RunLock::take() {
  std::optional<Holder> watched;
  Clock::time_point silent_since;
  while (true) {
    const int64_t newest = newest_in(folder_);
    const Holder holder = newest > 0 ? read_holder(file(newest)) : Holder{.released = true};
    const bool here = holder.identity.value("machine", "") == options_.machine;
    const bool alive = here && start_of(holder.identity.value("process", int64_t{0})) ==
                                   holder.identity.value("process_start", int64_t{-1});
    const bool own_run = !options_.run.empty() && holder.identity.value("run", "") == options_.run;
    if (!holder.released && alive && !own_run) throw_held(folder_.parent_path(), holder);
    if (!holder.released && !here && !own_run) {
      if (!watched) {
        if (options_.log) {
          options_.log(text(folder_.parent_path().string(), " was last written by ", holder.name(),
                            ": watching for ", base::human_duration(options_.silence_ns),
                            " whether it still runs"));
        }
        watched = holder;
        silent_since = Clock::now();
      } else if (holder.contents != watched->contents) {
        throw_held(folder_.parent_path(), holder);
      }
      if (Clock::now() - silent_since < std::chrono::nanoseconds(options_.silence_ns)) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(options_.silence_ns) / 60);
        if (options_.on_look) options_.on_look();
        continue;
      }
    }
    if (!make_file(newest + 1)) continue;  // another process was faster
    number_ = newest + 1;
    if (newest_in(folder_) > number_) continue;  // the listing was old: that number had passed
    break;
  }
  remove_leftovers();
}

// Removes leftovers of dead runs: old lock files, and drafts of processes that died while taking the lock. (A
// process that is just taking the lock can do without its draft.)
void RunLock::remove_leftovers() const {
  std::error_code ignored;
  for (const int64_t old : numbers_in(folder_)) {
    if (old + kOldFiles < number_) fs::remove(file(old), ignored);
  }
  std::vector<fs::path> drafts;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    if (entry.path().filename().string().starts_with(kDraft)) drafts.push_back(entry.path());
  }
  for (const fs::path& draft : drafts) fs::remove(draft, ignored);
}

// Returns false if the file exists. The file appears whole if the file system supports hard links.
bool RunLock::make_file(int64_t number) {
  const std::string contents = identity_ + state_line(false, beats_);
  const fs::path draft =
      folder_ / text(kDraft, base::parse_json(identity_, "the lock")["nonce"].get<std::string>());
  base::write_file_atomically(draft, contents);
  bool made = ::link(draft.c_str(), file(number).c_str()) == 0;
  const int error = errno;
  struct stat facts {};
  // The reply to a successful link may have been lost; the link count shows that it succeeded.
  if (!made) made = ::stat(draft.c_str(), &facts) == 0 && facts.st_nlink == 2;
  ::unlink(draft.c_str());
  if (made || error == EEXIST) return made;
  const int file = ::open(this->file(number).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) {
    if (errno == EEXIST) return false;
    throw base::RunError(text("cannot write ", this->file(number).string(), ": ", std::strerror(errno)));
  }
  const bool written =
      ::write(file, contents.data(), contents.size()) == static_cast<ssize_t>(contents.size());
  ::fsync(file);
  ::close(file);
  if (!written)
    throw base::RunError(text("cannot write ", this->file(number).string(), ": ", std::strerror(errno)));
  return true;
}

// Creates a removed lock file again, unless another process has taken the lock.
bool RunLock::holds_or_regains() {
  if (newest_in(folder_) > number_) return false;
  std::error_code error;
  if (fs::exists(file(number_), error)) {
    return read_holder(file(number_)).contents.starts_with(identity_);
  }
  try {
    base::make_directories(folder_);
    return make_file(number_);
  } catch (const base::Error&) {
    return true;  // the file system is away: no process can take the lock either
  }
}

void RunLock::keep() {
  thread_id_ = ::gettid();
  std::unique_lock lock(mutex_);
  while (!ending_.wait_for(lock, std::chrono::nanoseconds(options_.beat_ns), [&] { return released_; })) {
    if (!holds_or_regains()) {
      lock.unlock();
      try {
        require_held();
      } catch (const base::Error& error) {
        if (options_.on_lost) options_.on_lost(error);
      }
      return;
    }
    overwrite_end(file(number_), state_line(false, ++beats_));
  }
}

// Counts transfers as getrusage() does, which cannot be asked about another thread.
int64_t RunLock::transfers() const {
  constexpr int64_t kBlockBytes = 512;
  constexpr size_t kPagesRead = 9;
  const std::string thread = text("/proc/self/task/", thread_id_.load());
  int64_t transfers = 0;
  std::ifstream in(thread + "/io");
  std::string key;
  for (int64_t bytes = 0; in >> key >> bytes;) {
    if (key == "read_bytes:" || key == "write_bytes:") transfers += bytes / kBlockBytes;
  }
  const std::vector<std::string> fields = stat_fields(thread + "/stat");
  if (fields.size() > kPagesRead) transfers += base::parse_integer(fields[kPagesRead]).value_or(0);
  return transfers;
}

void RunLock::release() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(released_, true)) return;
  ending_.notify_all();
  if (read_holder(file(number_)).contents.starts_with(identity_)) {
    overwrite_end(file(number_), state_line(true, beats_));
  }
}

void RunLock::require_held() const {
  const int64_t newest = newest_in(folder_);
  const Holder holder = read_holder(file(std::max(newest, number_)));
  if (newest <= number_ && (holder.contents.empty() || holder.contents.starts_with(identity_))) return;
  throw base::RunError(text(folder_.parent_path().string(), " was taken over by ", holder.name(),
                            ", which took this run for dead: nothing is written any more"));
}

}  // namespace sluice::survive
