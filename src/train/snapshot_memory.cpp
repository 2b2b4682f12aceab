#include "train/snapshot_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/text.h"

namespace sluice::train {

namespace {

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

}  // namespace

SnapshotMemory::SnapshotMemory() : control_(new (map_shared(-1, sizeof(Control))) Control) {
  for (transport::Socket& file : files_) {
    file = transport::Socket(::memfd_create("sluice-snapshot", MFD_CLOEXEC));
    if (!file.is_open()) refuse(0);
  }
}

SnapshotMemory::~SnapshotMemory() { ::munmap(control_, sizeof(Control)); }

std::vector<membership::Held> SnapshotMemory::held() const {
  std::vector<membership::Held> held;
  for (const Seal& seal : control_->seals) {
    if (seal.serial == 0) continue;
    const Snapshot& snapshot = seal.snapshot;
    const membership::Held own{.step = snapshot.step,
                               .epoch = snapshot.epoch,
                               .ranks = snapshot.ranks,
                               .rank = snapshot.rank,
                               .hash = snapshot.own_hash,
                               .own = true};
    held.push_back(own);
    if (snapshot.copied_rank < 0) continue;
    membership::Held copy = own;
    copy.rank = snapshot.copied_rank;
    copy.hash = snapshot.copy_hash;
    copy.own = false;
    held.push_back(copy);
  }
  return held;
}

void SnapshotMemory::keep_only(int64_t step, int64_t epoch) {
  for (Seal& seal : control_->seals) {
    if (seal.snapshot.step != step || seal.snapshot.epoch != epoch) seal.serial = 0;
  }
}

size_t SnapshotMemory::older() const {
  return control_->seals[0].serial <= control_->seals[1].serial ? 0 : 1;
}

SnapshotMemory::View SnapshotMemory::open(const Snapshot& snapshot) {
  const size_t slot = older();
  control_->seals[slot].serial = 0;
  if (::ftruncate(files_[slot].fd(), snapshot.bytes()) != 0) refuse(snapshot.bytes());
  return {files_[slot].fd(), snapshot};
}

void SnapshotMemory::seal(const Snapshot& snapshot) {
  const size_t slot = older();
  Seal& seal = control_->seals[slot];
  seal.snapshot = snapshot;
  seal.serial = control_->seals[1 - slot].serial + 1;
}

std::optional<SnapshotMemory::View> SnapshotMemory::find(int64_t step, int64_t epoch) const {
  for (size_t slot = 0; slot < files_.size(); ++slot) {
    const Seal& seal = control_->seals[slot];
    if (seal.serial == 0 || seal.snapshot.step != step || seal.snapshot.epoch != epoch) continue;
    return View(files_[slot].fd(), seal.snapshot);
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

}  // namespace sluice::train
