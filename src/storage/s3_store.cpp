#include "storage/s3_store.h"

#include "base/error.h"
#include "base/text.h"

#ifdef SLUICE_S3

#include <curl/curl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "base/queue.h"
#include "storage/s3_client.h"

#endif

namespace sluice::storage {

using base::InputError;
using base::RunError;
using base::text;

void require_bucket_name(const std::string& bucket, const std::string& quoted) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789.-";
  if (bucket.size() >= 3 && bucket.size() <= 63 && bucket.find_first_not_of(kAllowed) == std::string::npos)
    return;
  throw InputError(text(quoted, " names bucket '", bucket,
                        "': a bucket has 3 to 63 lower-case letters, digits, dots and hyphens: write "
                        "s3://bucket/name"));
}

#ifdef SLUICE_S3

namespace {

constexpr int64_t kLeastPartBytes = int64_t{16} << 20;
constexpr int64_t kMostParts = 9'000;  // the protocol allows 10,000
constexpr size_t kUploads = 4;         // parallel uploads of one object
constexpr int kDownloads = 8;          // parallel downloads of one file

// An object of which the fetched parts are in memory.
class S3Source : public Source {
 public:
  S3Source(std::shared_ptr<S3Client> client, std::string key, FileStatus status)
      : client_(std::move(client)),
        key_(std::move(key)),
        size_(status.bytes),
        version_(std::move(status.version)) {
    if (size_ == 0) return;
    void* memory = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      throw RunError(text("no room to read s3://", client_->bucket(), "/", key_, ": ",
                          base::human_bytes(static_cast<double>(size_)),
                          ": raise the limit of memory (ulimit -v)"));
    }
    data_ = static_cast<std::byte*>(memory);
  }
  ~S3Source() override {
    if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(size_));
  }

  int64_t size() const override { return size_; }
  const std::byte* data() const override { return data_; }
  int readers() const override { return kDownloads; }

  void fetch(base::Interval bytes) override { read(bytes, data_ + bytes.begin); }

  void read(base::Interval bytes, std::byte* out) override {
    if (bytes.empty()) return;
    const S3Response got = client_->perform({.key = key_, .range = bytes, .into = out, .version = version_});
    const auto refuse = [&](const char* fault) {
      throw InputError(text("s3://", client_->bucket(), "/", key_, fault));
    };
    if (got.status == 404) refuse(" has been removed while it was read: restore it, and begin again");
    if (got.status == 412)
      refuse(" has been replaced while it was read: begin again, and leave it alone meanwhile");
  }

  // Frees whole pages inside the interval.
  bool release(base::Interval bytes) override {
    static const auto page = static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
    const int64_t begin = (bytes.begin + page - 1) / page * page;
    const int64_t end = bytes.end == size_ ? size_ : bytes.end / page * page;
    if (begin < end) ::madvise(data_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
    return true;
  }

 private:
  const std::shared_ptr<S3Client> client_;
  const std::string key_;
  const int64_t size_;
  const std::string version_;
  std::byte* data_ = nullptr;
};

// Uploads an object: one part is being filled and up to kUploads are being sent.
class S3Sink : public Sink {
 public:
  S3Sink(std::shared_ptr<S3Client> client, std::string key, int64_t bytes)
      : client_(std::move(client)),
        key_(std::move(key)),
        part_bytes_(std::max(kLeastPartBytes, bytes / kMostParts + 1)) {}

  ~S3Sink() override {
    stop();
    if (upload_.empty() || finished_) return;
    try {
      client_->perform({.method = "DELETE", .key = key_, .query = {{"uploadId", upload_}}});
    } catch (const std::exception&) {  // the first error was reported; the bucket's rules remove the rest
    }
  }

  void write(const void* data, size_t size) override {
    const auto* next = static_cast<const std::byte*>(data);
    while (size > 0) {
      const size_t part = std::min(size, static_cast<size_t>(part_bytes_) - buffer_.size());
      buffer_.insert(buffer_.end(), next, next + part);
      next += part;
      size -= part;
      if (static_cast<int64_t>(buffer_.size()) == part_bytes_) send();
    }
  }

  void finish() override {
    if (upload_.empty()) {
      client_->perform({.method = "PUT", .key = key_, .body = buffer_});
    } else {
      if (!buffer_.empty()) send();
      stop();
      throw_if_failed();
      complete();
    }
    finished_ = true;
  }

 private:
  struct UploadPart {
    int number = 0;
    std::vector<std::byte> bytes;
  };

  void send() {
    if (upload_.empty()) begin();
    throw_if_failed();
    parts_.push({++sent_, std::exchange(buffer_, {})});
    buffer_.reserve(static_cast<size_t>(part_bytes_));
  }

  void begin() {
    upload_ = xml_text(client_->perform({.method = "POST", .key = key_, .query = {{"uploads", ""}}}).body,
                       "UploadId");
    if (upload_.empty()) throw RunError(text("s3://", client_->bucket(), "/", key_, ": no upload was begun"));
    for (size_t i = 0; i < kUploads; ++i) threads_.emplace_back([this] { upload(); });
  }

  void upload() {
    while (const std::optional<UploadPart> part = parts_.pop()) {
      try {
        throw_if_failed();
        S3Response done =
            client_->perform({.method = "PUT",
                              .key = key_,
                              .query = {{"partNumber", std::to_string(part->number)}, {"uploadId", upload_}},
                              .body = part->bytes});
        const std::lock_guard lock(mutex_);
        tags_[part->number] = done.headers["etag"];
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
      }
    }
  }

  void complete() {
    std::string list = "<CompleteMultipartUpload>";
    for (const auto& [number, tag] : tags_) {
      list += text("<Part><PartNumber>", number, "</PartNumber><ETag>", xml_escaped(tag), "</ETag></Part>");
    }
    list += "</CompleteMultipartUpload>";
    client_->perform({.method = "POST",
                      .key = key_,
                      .query = {{"uploadId", upload_}},
                      .body = std::as_bytes(std::span(list))});
  }

  void throw_if_failed() {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

  void stop() {
    parts_.close();
    threads_.clear();  // joins
  }

  const std::shared_ptr<S3Client> client_;
  const std::string key_;
  const int64_t part_bytes_;
  std::vector<std::byte> buffer_;
  std::string upload_;  // the upload's id; "" while a single request may suffice
  int sent_ = 0;
  bool finished_ = false;
  std::mutex mutex_;  // guards tags_ and failure_
  std::map<int, std::string> tags_;
  std::exception_ptr failure_;
  base::BoundedQueue<UploadPart> parts_{1};
  std::vector<std::jthread> threads_;
};

// "2026-11-22T18:36:08.000Z" or "Sun, 22 Nov 2026 18:36:10 GMT"; nullopt for other texts.
std::optional<std::chrono::system_clock::time_point> time_of(const std::string& text) {
  std::tm parts{};
  const char* form = text.find('T') == 10 ? "%Y-%m-%dT%H:%M:%S" : "%a, %d %b %Y %H:%M:%S";
  if (::strptime(text.c_str(), form, &parts) == nullptr) return std::nullopt;
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

class S3Store : public Store {
 public:
  S3Store(const std::string& bucket, const S3Access& access)
      : client_(std::make_shared<S3Client>(bucket, access)) {}

  std::string text(const std::string& name) const override {
    return base::text("s3://", client_->bucket(), name.empty() ? "" : "/", name);
  }

  std::vector<Entry> entries(const std::string& directory) override {
    const std::string prefix = directory.empty() ? "" : directory + "/";
    std::map<std::pair<std::string, bool>, FileStatus> found;
    list(prefix, "/", [&](const std::string& name, bool is_prefix, const FileStatus& status) {
      std::string rest = name.substr(std::min(prefix.size(), name.size()));
      if (is_prefix && rest.ends_with('/')) rest.pop_back();
      if (!rest.empty()) found.emplace(std::pair(rest, is_prefix), status);
    });
    std::vector<Entry> entries;
    for (const auto& [entry, status] : found)
      entries.push_back({entry.first, entry.second, status.bytes, status.version});
    return entries;
  }

  std::optional<FileStatus> status(const std::string& file) override {
    const S3Response answer = client_->perform({.method = "HEAD", .key = file});
    if (answer.status == 404) return std::nullopt;
    const auto header = [&](const char* name) {
      const auto found = answer.headers.find(name);
      return found == answer.headers.end() ? std::string() : found->second;
    };
    const std::optional<int64_t> bytes = base::parse_integer(header("content-length"));
    if (!bytes) throw RunError(base::text(text(file), ": the server does not say how long it is"));
    return FileStatus{*bytes, time_of(header("last-modified")).value_or(std::chrono::system_clock::now()),
                      header("etag")};
  }

  std::unique_ptr<Source> open(const std::string& file) override {
    const std::optional<FileStatus> found = status(file);
    if (!found)
      throw InputError(base::text("cannot read ", text(file), ": there is none: name what is there"));
    return std::make_unique<S3Source>(client_, file, *found);
  }

  std::unique_ptr<Sink> create(const std::string& file, int64_t bytes) override {
    return std::make_unique<S3Sink>(client_, file, bytes);
  }

  void make_directory(const std::string&) override {}

  void remove(const std::string& file) override { client_->perform({.method = "DELETE", .key = file}); }

  void remove_tree(const std::string& directory) override {
    std::vector<std::string> names;
    list(directory + "/", "",
         [&](const std::string& name, bool, const FileStatus&) { names.push_back(name); });
    for (const std::string& name : names) remove(name);
  }

  bool rename(const std::string&, const std::string&) override { return false; }
  int64_t moved_bytes() const override { return client_->moved_bytes(); }

 private:
  // Calls found(name, whether it is a common prefix, size and version) for all names with this prefix. Names
  // that go on after the delimiter are grouped under their common prefix.
  template <typename Found>
  void list(const std::string& prefix, const std::string& delimiter, const Found& found) {
    std::string continuation;
    do {
      S3Request request;  // parameters must be in ascending order
      if (!continuation.empty()) request.query.emplace_back("continuation-token", continuation);
      if (!delimiter.empty()) request.query.emplace_back("delimiter", delimiter);
      request.query.emplace_back("list-type", "2");
      request.query.emplace_back("prefix", prefix);
      const std::string page = client_->perform(request).body;
      for (const std::string& object : xml_elements(page, "Contents")) {
        const int64_t bytes = base::parse_integer(xml_text(object, "Size")).value_or(0);
        found(xml_text(object, "Key"), false, FileStatus{bytes, {}, xml_text(object, "ETag")});
      }
      for (const std::string& common : xml_elements(page, "CommonPrefixes"))
        found(xml_text(common, "Prefix"), true, FileStatus{});
      continuation = xml_text(page, "IsTruncated") == "true" ? xml_text(page, "NextContinuationToken") : "";
    } while (!continuation.empty());
  }

  const std::shared_ptr<S3Client> client_;
};

}  // namespace

std::string s3_library() { return base::text("libcurl ", curl_version_info(CURLVERSION_NOW)->version); }

std::shared_ptr<Store> open_bucket(const std::string& bucket, const S3Access& access) {
  return std::make_shared<S3Store>(bucket, access);
}

#else

std::string s3_library() { return ""; }

std::shared_ptr<Store> open_bucket(const std::string& bucket, const S3Access&) {
  throw InputError(text("s3://", bucket, " needs libcurl, which this program was built without: install ",
                        "libcurl4-openssl-dev and build again, or name a directory"));
}

#endif

}  // namespace sluice::storage
