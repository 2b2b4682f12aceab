// Loading a checkpoint by 1, 2 and 4 readers at once, each its own part, as when a run resumes on another
// number of ranks. Files are dropped from the page cache before each load; values are compared with the
// written ones. The column `read` has the bytes from the disk in multiples of the checkpoint: 1 if no reader
// reads parts of others.
//
//   loading_bench [GB [FOLDER]]      2, the system's folder for temporary files
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "link/layout.h"
#include "model/outline.h"
#include "model/parameter_count.h"

namespace {

using namespace sluice;
namespace fs = std::filesystem;

constexpr int kReaders[] = {1, 2, 4};
constexpr int kWriters[] = {1, 4};

model::Outline shape_of(double bytes) {
  model::Outline outline{.layers = 1,
                         .hidden = 2048,
                         .heads = 16,
                         .kv_heads = 16,
                         .head_dim = 128,
                         .ffn_hidden = 5632,
                         .vocab = 1024};
  while (12.0 * static_cast<double>(model::parameter_count(outline)) < bytes) ++outline.layers;
  return outline;
}

// The value of element e in every bucket and state: e modulo a prime, exact in a float.
float value_of(int64_t element) { return static_cast<float>(element % 16'777'213); }

// Saves for ranks one after the other, as if each were a process.
fs::path save(const fs::path& root, const model::Outline& outline, int writers) {
  const model::ParameterTable table = model::parameter_table(outline);
  int64_t longest = 0;
  for (const model::Bucket& bucket : table.buckets) longest = std::max(longest, bucket.size);
  std::vector<float> values(static_cast<size_t>(longest));
  for (int64_t e = 0; e < longest; ++e) values[static_cast<size_t>(e)] = value_of(e);
  const fs::path directory = checkpoint::prepare_save(root, writers).path();
  checkpoint::Manifest manifest{.step = writers, .world_size = writers, .model = outline};
  for (int rank = 0; rank < writers; ++rank) {
    std::vector<checkpoint::OwnerState> states;
    for (const model::Bucket& bucket : table.buckets) {
      const base::Interval owned = link::OwnerLayout{writers}.owned(bucket, rank);
      const float* own = values.data() + owned.begin;
      states.push_back({owned, own, own, own});
    }
    manifest.files.push_back(
        checkpoint::write_rank_file(directory, rank, checkpoint::TensorType::kFloat32, states));
  }
  checkpoint::commit_save(directory, manifest, {.count = 100});
  return directory;
}

void drop_from_cache(const fs::path& directory) {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

int64_t bytes_from_disk() {
  std::ifstream io("/proc/self/io");
  for (std::string key; io >> key;) {
    int64_t value = 0;
    io >> value;
    if (key == "read_bytes:") return value;
  }
  return 0;
}

// Loads as rank `rank` of `readers` does when it resumes.
void load(const fs::path& directory, const model::ParameterTable& table, int readers, int rank) {
  checkpoint::Checkpoint checkpoint(directory);
  std::vector<base::Interval> owned;
  for (const model::Bucket& bucket : table.buckets) {
    owned.push_back(link::OwnerLayout{readers}.owned(bucket, rank));
  }
  checkpoint.verify(table, owned);
  std::vector<float> values;
  for (size_t bucket = 0; bucket < owned.size(); ++bucket) {
    values.resize(static_cast<size_t>(owned[bucket].size()));
    for (const auto state :
         {checkpoint::State::kMaster, checkpoint::State::kExpAvg, checkpoint::State::kExpAvgSq}) {
      checkpoint.read(table.buckets[bucket], owned[bucket], state, values.data());
      for (const int64_t e : {int64_t{0}, owned[bucket].size() / 2, owned[bucket].size() - 1}) {
        const float expected = value_of(owned[bucket].begin + e);
        SLUICE_ASSERT(values[static_cast<size_t>(e)] == expected, "a value is not what was written");
      }
    }
  }
}

void measure(const fs::path& directory, const model::Outline& outline, int writers, int readers) {
  const model::ParameterTable table = model::parameter_table(outline);
  const double bytes = 12.0 * static_cast<double>(model::parameter_count(outline));
  drop_from_cache(directory);
  const int64_t before = bytes_from_disk();
  const auto begin = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < readers; ++rank) {
      threads.emplace_back([&, rank] { load(directory, table, readers, rank); });
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double read = static_cast<double>(bytes_from_disk() - before) / bytes;
  std::printf("%7d %7d %10.2f %10.2f %8.2f\n", writers, readers, seconds, bytes / 1e9 / seconds, read);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  const double gigabytes = count > 1 ? std::strtod(arguments[1], nullptr) : 2;
  const fs::path folder = count > 2 ? fs::path(arguments[2]) : fs::temp_directory_path();
  const fs::path root = folder / base::text("loading-", ::getpid());
  try {
    const model::Outline outline = shape_of(gigabytes * 1e9);
    std::printf("%.2f GB, %u cores\n", 12.0 * static_cast<double>(model::parameter_count(outline)) / 1e9,
                std::thread::hardware_concurrency());
    std::printf("%7s %7s %10s %10s %8s\n", "writers", "readers", "seconds", "GB/s", "read");
    for (const int writers : kWriters) {
      const fs::path directory = save(root, outline, writers);
      for (const int readers : kReaders) measure(directory, outline, writers, readers);
      fs::remove_all(directory);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    fs::remove_all(root);
    return 1;
  }
  fs::remove_all(root);
  return 0;
}
