// Requests to one bucket: libcurl signs them (AWS signature version 4). Requests that fail for reasons that
// may pass are repeated after growing pauses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/interval.h"
#include "storage/s3_access.h"

using CURL = void;

namespace sluice::storage {

struct S3Request {
  const char* method = "GET";                              // GET, HEAD, PUT, POST or DELETE
  std::string key;                                         // the object's name; "": the bucket itself
  std::vector<std::pair<std::string, std::string>> query;  // sorted by name, not encoded
  std::span<const std::byte> body;
  std::optional<base::Interval> range;  // a range of the object's bytes
  std::byte* into = nullptr;            // receives the range's bytes instead of S3Response::body
  std::string version;                  // the entity tag that the object must have; empty: any
};

struct S3Response {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class S3Client {
 public:
  S3Client(std::string bucket, S3Access access);
  ~S3Client();
  S3Client(const S3Client&) = delete;
  S3Client& operator=(const S3Client&) = delete;

  const std::string& bucket() const { return bucket_; }

  // The response. Its status is 2xx, or 404 if GET, HEAD or DELETE finds no object, or 412 if the object
  // has another version. InputError if the server refuses the credentials, the bucket or its region.
  // RunError if the server cannot be reached or fails S3Access::attempts times. May be called by any
  // thread.
  S3Response perform(const S3Request& request);

  // Bytes of bodies sent and received so far.
  int64_t moved_bytes() const { return moved_bytes_; }

 private:
  struct Attempt;

  void attempt(const S3Request& request, Attempt& attempt);
  void prepare(CURL* handle, const S3Request& request, Attempt& attempt);
  S3Credentials credentials();
  void forget_credentials();
  std::string url_of(const S3Request& request) const;
  [[noreturn]] void refuse(const S3Request& request, const Attempt& attempt, int attempts) const;
  CURL* take_handle();
  void give_handle(CURL* handle);

  const std::string bucket_;
  const S3Access access_;
  std::atomic<int64_t> moved_bytes_ = 0;
  std::mutex mutex_;  // guards the members below
  std::optional<S3Credentials> credentials_;
  std::vector<CURL*> idle_;  // handles with open connections
};

// The content between <tag> and </tag> of each such element, unchanged. Such elements must not be nested.
std::vector<std::string> xml_elements(const std::string& xml, const std::string& tag);
// The text of the first such element with entities resolved; "" if there is none.
std::string xml_text(const std::string& xml, const std::string& tag);
// Escapes `text` for XML.
std::string xml_escaped(const std::string& text);

}  // namespace sluice::storage
