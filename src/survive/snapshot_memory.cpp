#include "survive/snapshot_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "transport/run_key.h"

namespace sluice::survive {

namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "sluice-";
constexpr const char* kSeals = ".seals";

[[noreturn]] void refuse(int64_t bytes) {
  throw base::RunError(base::text("no host memory for a snapshot of ",
                                  base::human_bytes(static_cast<double>(bytes)), " (", std::strerror(errno),
                                  "): set elastic.enabled = false, which needs none, or use more ranks"));
}

void* map_shared(int fd, int64_t bytes) {
  const int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0);
  void* mapped = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (mapped == MAP_FAILED) refuse(bytes);
  return mapped;
}

// The files of a folder that hold seals, with their modification times, newest first.
std::vector<std::pair<fs::file_time_type, fs::path>> seals_in(const fs::path& folder,
                                                              const std::string& prefix) {
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(kSeals))
      found.emplace_back(fs::last_write_time(entry.path(), ignored), entry.path());
  }
  std::ranges::sort(found, std::greater<>());
  return found;
}

}  // namespace

SnapshotMemory::SnapshotMemory() : control_(new (map_shared(-1, sizeof(Control))) Control) {
  for (transport::Socket& file : unnamed_) {
    file = transport::Socket(::memfd_create("sluice-snapshot", MFD_CLOEXEC));
    if (!file.is_open()) refuse(0);
  }
}

SnapshotMemory::SnapshotMemory(const NamedMemory& named) : SnapshotMemory() {
  const std::string mine = base::text(kPrefix, named.identity, "-");
  const std::vector<std::pair<fs::file_time_type, fs::path>> left = seals_in(named.folder, kPrefix);
  const auto stale = fs::file_time_type::clock::now() - std::chrono::seconds(named.stale_s);
  for (const auto& [written, file] : left) {
    const bool own = file.filename().string().starts_with(mine);
    if (own && named.takes_up && name_.empty() && take_up(file)) continue;
    if (written >= stale && (!own || named.takes_up)) continue;
    remove(file);
  }
  if (name_.empty()) make_named(named.folder / (mine + transport::random_secret() + kSeals));
}

void SnapshotMemory::remove_left(const NamedMemory& named) {
  for (const auto& [written, file] : seals_in(named.folder, base::text(kPrefix, named.identity, "-")))
    remove(file);
}

// Removes the memory unless a process holds its lock.
void SnapshotMemory::remove(const fs::path& file) {
  SnapshotMemory useless;
  if (useless.take_up(file)) useless.remove_name();
}

SnapshotMemory::~SnapshotMemory() { ::munmap(control_, sizeof(Control)); }

fs::path SnapshotMemory::slot_path(size_t slot) const {
  return fs::path(name_).replace_extension(std::to_string(slot));
}

// Returns false if a process holds its lock, or it was not made by this user and program.
bool SnapshotMemory::take_up(const fs::path& file) {
  transport::Socket seals(::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat facts {};
  if (!seals.is_open() || fstat(seals.fd(), &facts) != 0 || facts.st_uid != geteuid() ||
      facts.st_size != sizeof(Control) || flock(seals.fd(), LOCK_EX | LOCK_NB) != 0)
    return false;
  auto* control = static_cast<Control*>(map_shared(seals.fd(), sizeof(Control)));
  name_ = file;
  for (size_t slot = 0; slot < named_.size(); ++slot)
    named_[slot] = transport::Socket(::open(slot_path(slot).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  const bool whole = control->format == kFormat && named_[0].is_open() && named_[1].is_open();
  if (!whole) {
    ::munmap(control, sizeof(Control));
    name_.clear();
    return false;
  }
  ::munmap(std::exchange(control_, control), sizeof(Control));
  lock_ = std::move(seals);
  for (Seal& seal : control_->seals) {
    if (seal.unnamed) seal.serial = 0;  // its bytes ended with their process
  }
  return true;
}

// Locks the file before marking the memory as complete: a process that finds it earlier leaves it alone.
void SnapshotMemory::make_named(const fs::path& file) {
  const auto make = [](const fs::path& path) {
    return transport::Socket(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  };
  lock_ = make(file);
  const bool locked = lock_.is_open() && flock(lock_.fd(), LOCK_EX) == 0;
  // Reserves the room: writing a page for which there is none would end the process with SIGBUS.
  const int fault = locked ? ::posix_fallocate(lock_.fd(), 0, sizeof(Control)) : errno;
  if (fault != 0) {
    nameless_because_ = std::strerror(fault);
    if (lock_.is_open()) ::unlink(file.c_str());
    return lock_.close();
  }
  name_ = file;
  for (size_t slot = 0; slot < named_.size(); ++slot) named_[slot] = make(slot_path(slot));
  auto* control = new (map_shared(lock_.fd(), sizeof(Control))) Control;
  ::munmap(std::exchange(control_, control), sizeof(Control));
  control_->format = kFormat;
}

void SnapshotMemory::remove_name() {
  if (name_.empty()) return;
  ::unlink(name_.c_str());
  for (size_t slot = 0; slot < named_.size(); ++slot) {
    ::unlink(slot_path(slot).c_str());
    named_[slot].close();
  }
  name_.clear();
  for (Seal& seal : control_->seals) seal.serial = 0;
}

std::vector<membership::HeldSnapshot> SnapshotMemory::snapshots() const {
  std::vector<membership::HeldSnapshot> held;
  for (const Seal& seal : control_->seals) {
    if (seal.serial == 0) continue;
    const Snapshot& snapshot = seal.snapshot;
    const membership::HeldSnapshot own{.step = snapshot.step,
                                       .membership = snapshot.membership,
                                       .ranks = snapshot.ranks,
                                       .rank = snapshot.rank,
                                       .hash = snapshot.own_hash,
                                       .own = true};
    held.push_back(own);
    if (snapshot.copied_rank < 0) continue;
    membership::HeldSnapshot copy = own;
    copy.rank = snapshot.copied_rank;
    copy.hash = snapshot.copy_hash;
    copy.own = false;
    held.push_back(copy);
  }
  return held;
}

void SnapshotMemory::keep_only(int64_t step, int64_t epoch) {
  for (Seal& seal : control_->seals) {
    if (seal.snapshot.step != step || seal.snapshot.membership != epoch) seal.serial = 0;
  }
}

size_t SnapshotMemory::older() const {
  return control_->seals[0].serial <= control_->seals[1].serial ? 0 : 1;
}

int SnapshotMemory::file_of(size_t slot) const {
  return control_->seals[slot].unnamed ? unnamed_[slot].fd() : named_[slot].fd();
}

// Reserves room in the folder: writing a page for which there is none would end the process with SIGBUS.
SnapshotMemory::View SnapshotMemory::open(const Snapshot& snapshot) {
  const size_t slot = older();
  Seal& seal = control_->seals[slot];
  seal.serial = 0;
  const int named = named_[slot].fd();
  seal.unnamed = named < 0 || ::ftruncate(named, snapshot.bytes()) != 0 ||
                 ::posix_fallocate(named, 0, std::max<int64_t>(1, snapshot.bytes())) != 0;
  if (seal.unnamed) {
    if (named >= 0) static_cast<void>(!::ftruncate(named, 0));
    if (::ftruncate(unnamed_[slot].fd(), snapshot.bytes()) != 0) refuse(snapshot.bytes());
  }
  return {file_of(slot), snapshot};
}

void SnapshotMemory::seal(const Snapshot& snapshot) {
  const size_t slot = older();
  Seal& seal = control_->seals[slot];
  seal.snapshot = snapshot;
  seal.serial = control_->seals[1 - slot].serial + 1;
  if (lock_.is_open()) ::futimens(lock_.fd(), nullptr);  // the modification time: when it was last sealed
}

bool SnapshotMemory::lacks_room() const {
  return has_name() && std::ranges::any_of(control_->seals,
                                           [](const Seal& seal) { return seal.serial > 0 && seal.unnamed; });
}

std::optional<SnapshotMemory::View> SnapshotMemory::find(int64_t step, int64_t epoch) const {
  for (size_t slot = 0; slot < control_->seals.size(); ++slot) {
    const Seal& seal = control_->seals[slot];
    if (seal.serial == 0 || seal.snapshot.step != step || seal.snapshot.membership != epoch) continue;
    return View(file_of(slot), seal.snapshot);
  }
  return std::nullopt;
}

SnapshotMemory::View::View(int fd, Snapshot snapshot)
    : snapshot_(snapshot),
      bytes_(static_cast<char*>(map_shared(fd, std::max<int64_t>(1, snapshot.bytes())))) {}

SnapshotMemory::View::View(View&& other) noexcept
    : snapshot_(other.snapshot_), bytes_(std::exchange(other.bytes_, nullptr)) {}

SnapshotMemory::View::~View() {
  if (bytes_ != nullptr) ::munmap(bytes_, static_cast<size_t>(std::max<int64_t>(1, snapshot_.bytes())));
}

}  // namespace sluice::survive
